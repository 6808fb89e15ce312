"""Several processes that each hold a shard, by DeepSpeed's ZeRO (Rajbhandari et al. 2020). Only here is it imported.

=========  ====================================================================
stage      what each of W processes holds 1/W of
=========  ====================================================================
1          Adam's moments and the float32 master weights
2          the gradients too
3          the weights too, of all four models
=========  ====================================================================

One engine owns actor and critic, one more each frozen model at stage 3; at stages 1 and 2 frozen models are whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import set_checkpoint_early_stop

from ppo_lab.config.scale import LearnerConfig
from ppo_lab.learners import collectives, processes
from ppo_lab.learners.checks import check_checkpointing, check_settings, check_state, checked_groups, freeze
from ppo_lab.learners.plain import evaluating
from ppo_lab.learners.states import Made, part
from ppo_lab.records import to

from . import shards
from .engine import build_engine, let_rest
from .loading import settle, take_shards
from .replica import Replica
from .settings import deepspeed_settings

R = TypeVar("R")
X = TypeVar("X", int, float, Tensor)
SCALER = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")  # of DeepSpeed's dynamic loss scale
DEFAULTS = LearnerConfig(kind="zero")
DTYPES = {"no": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class ZeroLearner:
    """A `Learner` for any number of processes, one included; call `processes.join` before.

    The numbers are those of `PlainLearner` on the same global batch, up to the order of sums. In half precision the
    weights that forwards read are half, and AdamW's float32 master copy is sharded with its moments.

    Args:
        module: actor and critic in one, alike on all ranks, or at stage 3 unread (`learners.unread`): a rank then reads
            its shards only. Its parameters belong to DeepSpeed from here on.
        frozen: other models by name, for `score`.
        actor_rate, critic_rate, betas, eps, weight_decay, max_norm: as of `PlainLearner`.
        mixed_precision: "no", "bf16", or "fp16" with a dynamic loss scale from 2^16.
        cfg: stage, offload, generation, buckets.
        generator: the submodule that `whole` is entered for.

    Raises:
        ValueError: as `PlainLearner`.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        frozen: dict[str, nn.Module] | None = None,
        actor_rate: float,
        critic_rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        max_norm: float | None = 1.0,
        mixed_precision: str = "no",
        cfg: LearnerConfig = DEFAULTS,
        generator: str = "",
    ) -> None:
        check_settings(actor_rate, critic_rate, max_norm, mixed_precision, known=tuple(DTYPES))
        check_checkpointing(module)
        self.cfg, self.precision, self.max_norm = cfg, mixed_precision, max_norm
        self.rank, self.world, self.device = collectives.rank(), collectives.world(), processes.device()
        self.rates = {"actor": float(actor_rate), "critic": float(critic_rate)}
        if cfg.stage == 3:
            take_shards([module, *(frozen or {}).values()], self._settings(module), DTYPES[mixed_precision])
        self.groups = {name: group for name, group in checked_groups(module).items() if group}
        self.parameters = {name: p for group in self.groups.values() for name, p in group}
        models = {name: freeze(name, m, self.parameters) for name, m in (frozen or {}).items()}
        groups = [{"params": [p for _, p in group], "name": k} for k, group in self.groups.items()]
        optimizer = torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=eps, weight_decay=weight_decay)
        gathered = cfg.stage == 3 and cfg.generation == "gathered"
        self.replica = Replica(module, part=generator) if gathered else None
        self.engine = self._engine(module, optimizer=optimizer)
        self.module: nn.Module = self.engine.module
        self.frozen = {name: self._frozen(m) for name, m in models.items()}
        shards.begin(self.engine.optimizer)
        self.resting: set[int] = set()  # ids of parameters whose group has rate 0 in this step
        let_rest(self.engine.optimizer, self.resting)
        self.optimizer_steps = self.skipped_steps = 0
        self.averages: dict[str, nn.Parameter] = {}  # of whom an average is kept

    @property
    def counts(self) -> dict[str, int]:
        """Steps taken and steps left out since their gradient was not finite."""
        return {"optimizer_steps": self.optimizer_steps, "skipped_steps": self.skipped_steps}

    def held(self) -> dict[str, tuple[int, int]]:
        """Elements on this rank and in all: weights, ``trained`` and of each frozen model; a moment, ``optimizer``."""
        held = {name: shards.held_elements(m) for name, m in ({"trained": self.module} | self.frozen).items()}
        mine = sum(flat.numel() for flat in shards.flats_of(self.engine.optimizer))
        return held | {"optimizer": (mine, sum(shards.whole_size(p).numel() for p in self.parameters.values()))}

    def forward(self, **inputs: Any) -> Any:
        """The trained module's answer, with gradients, dropout off. Every rank calls it equally often."""
        with evaluating(self.module), set_checkpoint_early_stop(False):  # a half-run block would keep its weights
            return self.engine(**self._here(inputs))

    def score(self, name: str, **inputs: Any) -> Any:
        """A frozen module's answer, without gradients; at stage 3 every rank calls it equally often."""
        if name not in self.frozen:
            raise ValueError(f"score() knows the frozen models {sorted(self.frozen)}, got {name!r}; add it to frozen=")
        with torch.no_grad(), evaluating(self.frozen[name]):
            return self.frozen[name](**self._here(inputs))

    def accumulate(self, loss: Tensor) -> None:
        """Add the gradient of this share of the sum; DeepSpeed takes means over ranks, hence the factor."""
        if loss.numel() != 1 or not loss.requires_grad:
            raise ValueError(
                f"loss must be one number with a gradient, got shape {tuple(loss.shape)}, requires_grad "
                f"{loss.requires_grad}; sum the weighted terms of learner.forward(), weight 0 where there are no rows"
            )
        self.engine.backward(loss * self.world, scale_wrt_gas=False)

    def step(self, actor: float = 1.0, critic: float = 1.0) -> float:
        """Clip, step, zero; the norm before clipping, inf where it was not finite. See `Learner.step`."""
        self.resting.clear()
        for group, (name, own) in zip(self.engine.optimizer.param_groups, self.groups.items(), strict=True):
            multiplier = {"actor": actor, "critic": critic}[name]
            if not 0 <= multiplier < math.inf:
                raise ValueError(f"{name} multiplier must be finite and >= 0, got {multiplier}; 0 rests")
            group["lr"] = self.rates[name] * multiplier
            if group["lr"] == 0:
                self.resting.update(id(p) for _, p in own)
        self.engine.step()
        skipped = bool(self.engine.optimizer.overflow)
        self.skipped_steps += skipped
        self.optimizer_steps += not skipped
        return math.inf if skipped else float(self.engine.get_global_grad_norm())

    @torch.no_grad()
    def keep_average(self) -> None:
        """See `Learner.keep_average`: in this rank's shards."""
        self.averages = dict(self.groups.get("actor", ()))
        shards.keep_average(self.averages.values(), self.engine.optimizer)

    @torch.no_grad()
    def average(self, decay: float) -> None:
        """See `Learner.average`."""
        shards.move_average(self.averages.values(), self.engine.optimizer, decay)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """See `Learner.averaged`."""
        if not self.averages:
            raise ValueError("averaged() needs an average of the weights, got none; call keep_average() first")
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    @torch.no_grad()
    def _exchange(self) -> None:
        for p in self.averages.values():
            shards.exchange_average(p, self.engine.optimizer)
        self._publish()

    def total(self, x: X) -> X:
        """Sum over ranks."""
        return collectives.total(x)

    def gather(self, record: R) -> R:
        """All ranks' rows in rank order."""
        return collectives.gather(record)

    def share(self, n: int) -> slice:
        """My rows of ``n``."""
        return collectives.share(n, self.rank, self.world)

    @contextmanager
    def whole(self) -> Iterator[nn.Module]:
        """A whole copy without hooks; under ``generation: sharded`` the sharded module itself."""
        with torch.no_grad():
            if self.replica is None:
                with evaluating(self.module):
                    yield self.module
            else:
                with self.replica.filled() as module, evaluating(module):
                    yield module

    def state(self) -> Mapping[str, Tensor]:
        """See `Learner.state`. A tensor is gathered to rank 0 when it is asked for."""
        optimizer, whole, counts = self.engine.optimizer, self._buffers() | self._extra(), self.counts

        def make(name: str) -> Tensor:
            if self.counts != counts:
                raise ValueError(f"{name} must be asked for before the next step(), got {self.counts}; call state()")
            if name in whole:
                return whole[name].detach().to("cpu", copy=True)
            what, _, own = name.partition(".")
            p = self.parameters[own]
            return shards.steps_of(p, optimizer) if what == "step" else shards.read(p, optimizer, what)

        return Made(self._outline(), make)

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """See `Learner.load`: of each tensor a rank reads the piece that it owns."""
        check_state(state, self._outline())
        optimizer = self.engine.optimizer
        for name, p in self.parameters.items():
            for what in ("model", *shards.MOMENTS):
                shards.write(p, optimizer, what, partial(part, state, f"{what}.{name}"))
            if name in self.averages:
                shards.write(p, optimizer, shards.AVERAGE, partial(part, state, f"{shards.AVERAGE}.{name}"))
            piece = shards.piece_of(p, optimizer)
            if piece is not None:
                optimizer.optimizer.state[piece.flat]["step"].copy_(state[f"step.{name}"])
        for name, x in self.module.named_buffers():
            if f"model.{name}" in state:
                x.copy_(state[f"model.{name}"])
        self._publish()
        self.optimizer_steps, self.skipped_steps = (int(state[f"count.{name}"]) for name in self.counts)
        for name in SCALER if self.precision == "fp16" else ():
            kind = type(getattr(optimizer.loss_scaler, name))
            setattr(optimizer.loss_scaler, name, kind(state[f"scale.{name}"].item()))
        self.engine.optimizer.zero_grad()

    def _publish(self) -> None:
        """Round the float32 shards to the weights that forwards read, everywhere."""
        optimizer = self.engine.optimizer
        if self.cfg.stage < 3:
            optimizer.update_lp_params()
        elif optimizer.persistent_parameters:
            optimizer.persistent_parameters[0].partition(optimizer.persistent_parameters, has_been_updated=False)
            optimizer.persistent_parameters[0].all_gather(optimizer.persistent_parameters)

    def _outline(self) -> dict[str, Tensor]:
        """Shape and dtype of all that a checkpoint holds."""
        found = {f"{what}.{name}": torch.empty(shards.whole_size(p), device="meta")
                 for what in ("model", *shards.MOMENTS) for name, p in self.parameters.items()}  # fmt: skip
        found |= {f"step.{name}": torch.empty((), device="meta") for name in self.parameters}
        found |= {f"{shards.AVERAGE}.{name}": torch.empty(shards.whole_size(p), device="meta")
                  for name, p in self.averages.items()}  # fmt: skip
        whole = self._buffers() | self._extra()
        return found | {name: torch.empty_like(x, device="meta") for name, x in whole.items()}

    def _buffers(self) -> dict[str, Tensor]:
        kept = _persistent(self.module)
        return {f"model.{name}": x for name, x in self.module.named_buffers() if name in kept}

    def _extra(self) -> dict[str, Tensor]:
        named = {f"count.{name}": torch.tensor(count) for name, count in self.counts.items()}
        if self.precision == "fp16":
            scaler = self.engine.optimizer.loss_scaler
            named |= {f"scale.{name}": torch.tensor(float(getattr(scaler, name))) for name in SCALER}
        return named

    def _settings(self, model: nn.Module, *, frozen: bool = False) -> dict[str, Any]:
        elements = sum(shards.whole_size(p).numel() for p in model.parameters())
        return deepspeed_settings(self.cfg, precision=self.precision, max_norm=self.max_norm, elements=elements,
                                  frozen=frozen)  # fmt: skip

    def _engine(self, model: nn.Module, *, optimizer: torch.optim.Optimizer | None) -> Any:
        settle(model, DTYPES[self.precision], self.device)
        return build_engine(model, self._settings(model, frozen=optimizer is None), optimizer)

    def _frozen(self, model: nn.Module) -> Any:
        if self.cfg.stage < 3:
            return model.to(self.device, DTYPES[self.precision])
        return self._engine(model, optimizer=None).module

    def _here(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {name: to(value, self.device) for name, value in inputs.items()}


def _persistent(module: nn.Module) -> set[str]:
    """Names of the buffers that a state dict would hold, without gathering one."""
    return {
        f"{prefix}.{name}".lstrip(".")
        for prefix, part in module.named_modules()
        for name in part._buffers
        if name not in part._non_persistent_buffers_set
    }
