"""Small worlds whose values, gradients and optima are known: what the estimators of `ppo_lab.core` are held against."""
