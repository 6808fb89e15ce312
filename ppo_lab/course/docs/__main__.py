"""``python -m ppo_lab.course.docs`` writes what is stale, one line each."""

from ppo_lab.course.docs import write

if __name__ == "__main__":
    print("\n".join(write()) or "the documentation is up to date")
