"""PPO and RLHF, taught by code that runs.

Every equation of the course is one pure function in `ppo_lab.core`; `ppo_lab.control` and `ppo_lab.rlhf` are the two
worlds that use them, and `ppo_lab.cli` is the command line. Importing this package loads nothing but itself: parts
that need transformers, gymnasium, deepspeed or matplotlib load them when they are used.
"""

__version__ = "0.1.0"
