"""Classic control and tabular probes: environments, policies, and one recipe for five algorithms.

>>> from ppo_lab.config import load_config
>>> load_config("control/cartpole").env.id
'CartPole-v1'
"""

from .train import Run

__all__ = ["Run"]
