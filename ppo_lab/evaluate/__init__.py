"""How good a policy is, and how sure that is: pass@k, and statistics for runs over seeds."""
