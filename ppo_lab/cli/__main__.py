"""``python -m ppo_lab.cli`` is ``ppo-lab``, for a process started from a notebook cell."""

from ppo_lab.cli import main

if __name__ == "__main__":
    main()
