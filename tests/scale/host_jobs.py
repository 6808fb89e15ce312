"""What a real process takes of main memory, in phases; printed as JSON. Run by `test_host.py`, each job in its own.

    host_jobs.py base | whole | saving FOLDER
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

SIZES = {"vocab_size": 16384, "hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": 4,
         "num_attention_heads": 6}  # fmt: skip


def memory(field: str = "VmRSS") -> int:
    """Bytes of this process: VmRSS now, VmHWM at most since `forget`."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[field].split()[0]) * 1024


def forget() -> None:
    """The highest mark is what is there now."""
    Path("/proc/self/clear_refs").write_text("5")


def small_policy(**changes: int) -> Any:
    from transformers import AutoModelForCausalLM, LlamaConfig

    return AutoModelForCausalLM.from_config(LlamaConfig(**{**SIZES, **changes}))


def module() -> Any:
    """Actor and critic, with a trunk each, as a run builds them."""
    from ppo_lab import seeding
    from ppo_lab.rlhf.models.actor_critic import ActorCritic, ValueHead, trunk_of

    policy = small_policy()
    head = ValueHead(SIZES["hidden_size"], generator=seeding.generator("test", "head"))
    return ActorCritic(policy, head, copy.deepcopy(trunk_of(policy)))


def base() -> dict[str, int]:
    import deepspeed  # noqa: F401

    import ppo_lab.rlhf  # noqa: F401

    small_policy(vocab_size=16, hidden_size=12)
    return {"bytes": memory()}


def whole() -> dict[str, int]:
    """Four models, as a run without sharded loading builds them."""
    from ppo_lab.rlhf.models.build import build_reward_model

    build_reward_model(small_policy(vocab_size=16, hidden_size=12), seed=0)  # whatever is imported late
    before = memory()
    trained, reward = module(), build_reward_model(small_policy(), seed=0)
    models = trained, copy.deepcopy(trained.policy), reward
    return {"bytes": memory() - before, "models": len(models)}


def saving(folder: str) -> dict[str, int]:
    """A checkpoint of a ZeRO-3 learner, written twice: what the second one takes besides what is there."""
    from ppo_lab import checkpoint
    from ppo_lab.learners import processes
    from ppo_lab.learners.zero import ZeroLearner

    processes.join("zero")
    learner = ZeroLearner(module(), actor_rate=1e-3, critic_rate=1e-3)
    checkpoint.save(Path(folder), 1, learner.state(), {}, keep=1)
    forget()
    before = memory()
    checkpoint.save(Path(folder), 2, learner.state(), {}, keep=1)
    processes.leave()
    return {"bytes": memory("VmHWM") - before}


if __name__ == "__main__":
    found = {"base": base, "whole": whole, "saving": saving}[sys.argv[1]](*sys.argv[2:])
    print(json.dumps(found))
