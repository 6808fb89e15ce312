"""Experiments of the notebooks as tested functions: one run a seed, rows or records of numbers, no pictures."""
