"""TRL 1.12.0's experimental PPO, an iteration a turn. Needs that TRL, the last that has PPO: benchmarks/README.md.

TRL is not changed. Two names of its module are wrapped: `batch_generation` begins an iteration, and there the relay
waits; `log` ends the update. gradient_accumulation_steps is 1 and the rollout one batch, for else the number of
optimizer steps is another; a hook on the optimizer counts them.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from relay import Station

os.environ.update(TRL_EXPERIMENTAL_SILENCE="1", TRANSFORMERS_OFFLINE="1", WANDB_DISABLED="true", TQDM_DISABLE="1")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, help="folder with policy/ and reward/")
    parser.add_argument("--minibatches", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--response", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def settings(asked: argparse.Namespace) -> dict[str, Any]:
    """What PPOConfig is given."""
    return dict(
        output_dir=f"{asked.model}/trl", report_to="none", use_cpu=True, bf16=False, fp16=False, seed=asked.seed,
        gradient_checkpointing=False, learning_rate=asked.rate, lr_scheduler_type="constant",
        per_device_train_batch_size=asked.batch, gradient_accumulation_steps=1, num_mini_batches=asked.minibatches,
        num_ppo_epochs=asked.epochs, total_episodes=asked.batch * asked.rounds, response_length=asked.response,
        local_rollout_forward_batch_size=asked.batch, temperature=1.0, stop_token=None, missing_eos_penalty=None,
        kl_coef=0.05, num_sample_generations=0, save_strategy="no", eval_strategy="no", logging_steps=1,
        disable_tqdm=True, dataloader_pin_memory=False,
    )  # fmt: skip


def main() -> None:
    asked, station = options(), Station()
    import torch
    import transformers
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
    from trl import __version__
    from trl.experimental import ppo
    from trl.experimental.ppo import ppo_trainer

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    transformers.logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(f"{asked.model}/policy", padding_side="left")
    causal = [AutoModelForCausalLM.from_pretrained(f"{asked.model}/policy") for _ in range(2)]
    scalar = [AutoModelForSequenceClassification.from_pretrained(f"{asked.model}/reward", num_labels=1)
              for _ in range(2)]  # fmt: skip
    drawn = torch.Generator().manual_seed(asked.seed)
    prompts = torch.randint(4, 1024, (asked.batch, asked.prompt), generator=drawn)
    data = Dataset.from_dict({"input_ids": prompts.tolist()})
    found: dict[str, Any] = {"version": __version__}
    steps, generate = [0], ppo_trainer.batch_generation

    def wait_then_generate(*args: object, **options: object) -> object:
        station.turn(**found, optimizer_steps=steps[0])
        steps[0] = 0
        return generate(*args, **options)

    ppo_trainer.batch_generation = wait_then_generate
    trainer = ppo.PPOTrainer(args=ppo.PPOConfig(**settings(asked)), processing_class=tokenizer, model=causal[0],
                             ref_model=causal[1], reward_model=scalar[0], value_model=scalar[1], train_dataset=data,
                             eval_dataset=data)  # fmt: skip
    trainer.log = lambda metrics, *args, **options: found.update(score=metrics["objective/scores"])
    trainer.callback_handler.callbacks.clear()
    inner = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    inner.register_step_post_hook(lambda *args: steps.__setitem__(0, steps[0] + 1))
    trainer.train()


if __name__ == "__main__":
    main()
