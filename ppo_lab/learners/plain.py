"""One process that owns all its weights: the reference which the other learners must equal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ppo_lab.core.averages import moving_average
from ppo_lab.learners import collectives
from ppo_lab.learners.checks import check_checkpointing, check_settings, check_state, checked_groups, freeze
from ppo_lab.records import to

R = TypeVar("R")
X = TypeVar("X", int, float, Tensor)
HALF = (torch.float16, torch.bfloat16)
MOMENTS = ("exp_avg", "exp_avg_sq")  # of Adam: m and v
AVERAGE = "ema"  # lies beside them: the moving average of a weight


@contextmanager
def evaluating(module: nn.Module) -> Iterator[nn.Module]:
    """Dropout off inside; afterwards every submodule is in the mode it came in."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield module
    finally:
        for part in training:
            part.training = True


def global_norm(gradients: list[Tensor]) -> Tensor:
    r"""Length of all gradients laid end to end, :math:`\sqrt{\sum_i g_i^2}`, float64.

    >>> global_norm([torch.tensor([3.0]), torch.tensor([[4.0]])])
    tensor(5., dtype=torch.float64)
    """
    return torch.linalg.vector_norm(torch.stack([g.double() for g in torch._foreach_norm(gradients)]))


class PlainLearner:
    """A `Learner` for one process, on the device that accelerate picks (or the one named).

    The optimizer is AdamW over two groups, the module's ``parameter_groups()``: ``{"actor": [(name, parameter)],
    "critic": [...]}`` with every trained parameter once, under a name of ``named_parameters()``. Parameters in half
    precision are trained through a float32 master copy, where their gradients are added up too: at a rate of 1e-5 a
    bfloat16 weight would hardly ever move. With ``mixed_precision="bf16"`` the weights stay float32 and matrix products
    run in bfloat16.

    Args:
        module: actor and critic in one, called as ``module(**inputs)``.
        frozen: other models by name, for `score`; they lose their gradients for good.
        actor_rate, critic_rate: base learning rates, a step. Higher: faster, and less stable.
        betas, eps, weight_decay: of AdamW (Loshchilov & Hutter 2019); decay is decoupled, and 0 where the rate is.
        max_norm: longest gradient over both groups; ``None`` does not clip. Lower: smaller steps after outliers.
        mixed_precision: "no" or "bf16".
        device: as "cpu" or "cuda:0"; ``None`` leaves it to accelerate.
        fused: AdamW's step as one kernel: a quarter of the time on small networks, equal up to rounding.

    Raises:
        ValueError: a rate, a norm or the precision is out of range; ``parameter_groups()`` names a parameter twice,
            leaves one out or holds a frozen one; gradient checkpointing that would not act; a frozen model shares a
            trained parameter; more than one process was launched.
    """

    several = False  # whether it can work beside others

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
        device: torch.device | str | None = None,
        fused: bool = False,
    ) -> None:
        check_settings(actor_rate, critic_rate, max_norm, mixed_precision)
        check_checkpointing(module)
        self.device = _device(device)
        self.rank, self.world = collectives.rank(), collectives.world()
        if self.world > 1 and not self.several:
            raise ValueError(f"learner plain needs 1 process, got {self.world}; start it without a launcher")
        self.module = module.to(self.device)
        self.max_norm, self.bf16 = max_norm, mixed_precision == "bf16"
        self.rates = {"actor": float(actor_rate), "critic": float(critic_rate)}
        self.groups = checked_groups(self.module)
        self.parameters = {name: p for group in self.groups.values() for name, p in group}
        self.frozen = {name: freeze(name, m, self.parameters).to(self.device) for name, m in (frozen or {}).items()}
        self.masters = {name: _master(p) for name, p in self.parameters.items()}
        groups = [{"params": [self.masters[name] for name, _ in group], "name": k} for k, group in self.groups.items()]
        self.optimizer = torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=eps, weight_decay=weight_decay,
                                           fused=fused or None)  # fmt: skip
        for master in self.masters.values():  # as AdamW does at its first step: state() has the same names before it
            moments = {m: torch.zeros_like(master, memory_format=torch.preserve_format) for m in MOMENTS}
            self.optimizer.state[master] = {"step": torch.zeros((), dtype=torch.float32), **moments}
        self.optimizer_steps = self.skipped_steps = 0

    @property
    def counts(self) -> dict[str, int]:
        """Steps taken and steps left out since their gradient was not finite."""
        return {"optimizer_steps": self.optimizer_steps, "skipped_steps": self.skipped_steps}

    def forward(self, **inputs: Any) -> Any:
        """The trained module's answer, with gradients, dropout off; inputs are brought to its device."""
        with evaluating(self.module), self._precision():
            return self.module(**self._here(inputs))

    def score(self, name: str, **inputs: Any) -> Any:
        """A frozen module's answer, without gradients."""
        if name not in self.frozen:
            raise ValueError(f"score() knows the frozen models {sorted(self.frozen)}, got {name!r}; add it to frozen=")
        model = self.frozen[name]
        with torch.no_grad(), evaluating(model), self._precision():
            return model(**self._here(inputs))

    def accumulate(self, loss: Tensor) -> None:
        """Add the gradient of this share of the sum. Half-precision gradients are added up in float32."""
        if loss.numel() != 1 or not loss.requires_grad:
            raise ValueError(
                f"loss must be one number with a gradient, got shape {tuple(loss.shape)}, requires_grad "
                f"{loss.requires_grad}; sum the weighted terms of learner.forward(), weight 0 where there are no rows"
            )
        loss.backward()
        for name, master in self.masters.items():
            p = self.parameters[name]
            if p is not master and p.grad is not None:
                master.grad = p.grad.to(master.dtype) if master.grad is None else master.grad.add_(p.grad)
                p.grad = None

    def step(self, actor: float = 1.0, critic: float = 1.0) -> float:
        """Clip, step, zero; the norm before clipping. See `Learner.step`."""
        for group, multiplier in zip(self.optimizer.param_groups, (actor, critic), strict=True):
            if not 0 <= multiplier < math.inf:
                raise ValueError(f"{group['name']} multiplier must be finite and >= 0, got {multiplier}; 0 rests")
            group["lr"] = self.rates[group["name"]] * multiplier
            for master in group["params"]:
                if master.grad is None or group["lr"] == 0:
                    master.grad = torch.zeros_like(master)
        gradients = [master.grad for master in self.masters.values() if master.grad is not None]
        self.combine(gradients)
        norm = global_norm(gradients).item()
        if math.isfinite(norm):
            if self.max_norm is not None and norm > self.max_norm:
                torch._foreach_mul_(gradients, self.max_norm / norm)
            self.optimizer.step()
            self._publish()
            self.optimizer_steps += 1
        else:
            self.skipped_steps += 1
        self.optimizer.zero_grad()
        return norm

    @torch.no_grad()
    def keep_average(self) -> None:
        """See `Learner.keep_average`."""
        for name, _ in self.groups["actor"]:
            master = self.masters[name]
            self.optimizer.state[master][AVERAGE] = master.detach().clone()

    @torch.no_grad()
    def average(self, decay: float) -> None:
        """See `Learner.average`."""
        for master, kept in self._averages().values():
            kept.copy_(moving_average(kept, master, decay=decay))

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """See `Learner.averaged`."""
        pairs = list(self._averages().values())
        if not pairs:
            raise ValueError("averaged() needs an average of the weights, got none; call keep_average() first")
        self._exchange(pairs)
        try:
            yield
        finally:
            self._exchange(pairs)

    @torch.no_grad()
    def _exchange(self, pairs: list[tuple[Tensor, Tensor]]) -> None:
        for master, kept in pairs:
            now = master.detach().clone()
            master.copy_(kept)
            kept.copy_(now)
        self._publish()

    def _averages(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Weights of the actor and their average, by name; nothing before `keep_average`."""
        masters = {name: self.masters[name] for name, _ in self.groups["actor"]}
        states = self.optimizer.state
        return {name: (x, states[x][AVERAGE]) for name, x in masters.items() if AVERAGE in states[x]}

    def combine(self, gradients: list[Tensor]) -> None:
        """Sum the gradients over ranks, in place: one process has all of it."""

    def total(self, x: X) -> X:
        """Sum over ranks: ``x`` itself."""
        return collectives.total(x)

    def gather(self, record: R) -> R:
        """All ranks' rows: the record itself."""
        return collectives.gather(record)

    def share(self, n: int) -> slice:
        """My rows of ``n``: all of them."""
        return collectives.share(n, self.rank, self.world)

    @contextmanager
    def whole(self) -> Iterator[nn.Module]:
        """The trained module itself, to generate with: dropout off, no gradients."""
        with torch.no_grad(), evaluating(self.module), self._precision():
            yield self.module

    def state(self) -> dict[str, Tensor]:
        """See `Learner.state`. Frozen parameters inside the trained module are not in it: they are the base model's,
        whose hash (`checkpoint.hash_module`) belongs beside it."""
        counts = {f"count.{name}": torch.tensor(count) for name, count in self.counts.items()}
        return {name: x.detach().to("cpu", copy=True) for name, x in self._tensors().items()} | counts

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        """See `Learner.load`. Tensors are copied into place, so shared parameters stay shared."""
        counts = {f"count.{name}": torch.tensor(count) for name, count in self.counts.items()}
        mine = self._tensors()
        check_state(state, mine | counts)
        for name, x in mine.items():
            x.copy_(state[name])
        self.optimizer_steps, self.skipped_steps = (int(state[name]) for name in counts)
        self.optimizer.zero_grad()
        self._publish()

    def _tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds, by plain name, not copied."""
        kept = self.module.state_dict(keep_vars=True)
        buffers = {name: x for name, x in self.module.named_buffers() if name in kept}
        named = {f"model.{name}": x for name, x in (self.masters | buffers).items()}
        for moment in (*MOMENTS, "step"):
            named |= {f"{moment}.{name}": self.optimizer.state[master][moment] for name, master in self.masters.items()}
        return named | {f"{AVERAGE}.{name}": kept for name, (_, kept) in self._averages().items()}

    @torch.no_grad()
    def _publish(self) -> None:
        """Round the master copies to the half-precision weights that the forward pass reads."""
        for name, master in self.masters.items():
            if self.parameters[name] is not master:
                self.parameters[name].copy_(master)

    def _precision(self) -> AbstractContextManager[Any]:
        return torch.autocast(self.device.type, dtype=torch.bfloat16) if self.bf16 else nullcontext()

    def _here(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return {name: to(value, self.device) for name, value in inputs.items()}

def _device(device: torch.device | str | None) -> torch.device:
    if device is not None:
        return torch.device(device)
    from accelerate import PartialState  # slow to import, and only needed to choose

    return PartialState().device


def _master(p: nn.Parameter) -> nn.Parameter:
    """The parameter itself, or a float32 copy of one in half precision."""
    return nn.Parameter(p.detach().float()) if p.dtype in HALF else p
