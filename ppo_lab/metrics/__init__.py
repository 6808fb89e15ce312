"""The metric registry, and the log that metrics are written to.

One entry for every number a run records, so that documentation, dashboard and diagnosis say the same. The names other
frameworks use were read in their sources: TRL 1.12 ``experimental/ppo/ppo_trainer.py``; OpenRLHF ``ray/ppo_actor.py``,
``ray/ppo_critic.py``, ``ppo_trainer.py``; verl ``ppo/metric_utils.py``, ``ppo/ray_trainer.py``, ``actor/dp_actor.py``,
``critic/dp_critic.py``; CleanRL ``ppo.py``; Stable-Baselines3 ``ppo.py``, ``on_policy_algorithm.py``.

>>> metric("ref_kl_sum").unit, metric("ref_kl_sum").aliases["trl"]
('nats per sequence', 'objective/kl')
"""

from __future__ import annotations

from difflib import get_close_matches

from ppo_lab.metrics.control import CONTROL
from ppo_lab.metrics.evaluation import EVALUATION
from ppo_lab.metrics.lengths import LENGTHS
from ppo_lab.metrics.log import decode, encode, read, truncate, write_line
from ppo_lab.metrics.metric import GROUPS, PEERS, Metric
from ppo_lab.metrics.rollout import COST, CRITIC, REFERENCE, SCORES, TEXT
from ppo_lab.metrics.update import UPDATE

REGISTRY: dict[str, Metric] = {
    entry.name: entry for entry in SCORES + EVALUATION + REFERENCE + TEXT + LENGTHS + UPDATE + CRITIC + COST + CONTROL
}

__all__ = ["GROUPS", "PEERS", "REGISTRY", "Metric", "group", "metric", "decode", "encode", "read",
           "truncate", "write_line"]


def metric(name: str) -> Metric:
    """The registry's entry of that name; `ValueError` with the nearest name otherwise."""
    if name in REGISTRY:
        return REGISTRY[name]
    near = get_close_matches(name, REGISTRY, n=1) or ["one of ppo_lab.metrics.REGISTRY"]
    raise ValueError(f"{name!r} is not a metric; did you mean {near[0]}?")


def group(name: str) -> tuple[Metric, ...]:
    """The metrics of one panel, in order.

    >>> [entry.name for entry in group("reference")]
    ['eval_ref_kl_sum', 'eval_ema_ref_kl_sum', 'ref_kl_sum', 'ref_kl_token', 'beta']
    """
    return tuple(entry for entry in REGISTRY.values() if entry.group == name)
