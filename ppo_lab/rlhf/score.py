"""From opinions to one score an answer: reward sources, their checks, normalising, and the time limit.

A reward is any callable ``reward(prompts, responses, **columns) -> (B,) or (B, T)``: texts in, one number an answer or
one a token (T is then ``sampling.max_new_tokens``; what lies beyond an answer's end is ignored). Whatever it returns is
checked before it is used; what it raises names the reward.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ppo_lab.config.base import ConfigError
from ppo_lab.config.language import RewardConfig
from ppo_lab.config.reward import ENSEMBLES
from ppo_lab.core.averages import ensemble_score, ensemble_spread
from ppo_lab.core.masking import select
from ppo_lab.core.several import chebyshev, lexicographic
from ppo_lab.learners.collectives import everywhere, standing

from .rewards import final_score, length_normalized

Reward = Callable[..., Any]


class RewardError(RuntimeError):
    """A reward failed while running; the message names it, the rule, what it gave and a fix."""


@dataclass
class Normalizer:
    """Running count, mean and sum of squares of raw scores; Welford's update, mergeable across ranks.

    ``reference`` fills it once with answers of the reference (gain and bias of Ziegler et al. 2019); ``running`` goes
    on filling it, so the scale of the score moves as the policy improves.
    """

    count: float = 0.0
    mean: float = 0.0
    square: float = 0.0  # Σ (x - mean)²

    def update(self, x: Tensor) -> None:
        """See more scores."""
        n = float(x.numel())
        if not n:
            return
        mean = float(x.double().mean())
        delta, total = mean - self.mean, self.count + n
        self.square += float(((x.double() - mean) ** 2).sum()) + delta**2 * self.count * n / total
        self.mean += delta * n / total
        self.count = total

    def __call__(self, x: Tensor) -> Tensor:
        """Scores with mean 0 and deviation 1 over what was seen; a constant reward is only shifted."""
        if self.count < 2:
            return x
        deviation = (self.square / self.count) ** 0.5
        return (x - self.mean) / (deviation if deviation > 1e-8 else 1.0)


@dataclass(frozen=True)
class Source:
    """One named reward with its weight and normaliser."""

    name: str
    reward: Reward
    weight: float = 1.0
    least: float | None = None  # what the normalised score should reach, for chebyshev and constraint
    normalizer: Normalizer = field(default_factory=Normalizer)
    trusted: bool = False  # our own reward models: no time limit, no thread


@dataclass(frozen=True)
class Scores:
    """Combined raw score and finished score ``(B,)``; process reward ``(B, T)`` or None; how far members are apart."""

    raw: Tensor
    final: Tensor
    token: Tensor | None
    spread: Tensor | None = None  # (B,) deviation over the normalised scores of an ensemble


class Scorer:
    """Applies every source of a `RewardConfig`: normalise, combine, then clip and the missing-EOS rule."""

    def __init__(self, sources: Sequence[Source], cfg: RewardConfig):
        self.sources, self.cfg = list(sources), cfg
        self.per_token: set[int] = set()  # numbers of the sources that were seen to reward tokens

    def opinions(
        self, prompts: Sequence[str], responses: Sequence[str], columns: dict[str, list], steps: int
    ) -> list[Tensor]:
        """Raw output of every source, checked, ``(B,)`` or ``(B, T)`` each.

        Raises:
            RewardError: a reward fails; where it is asked on several ranks, all raise a `SharedError` that names one.
        """
        asked = (prompts, responses, columns, steps)
        work = [partial(self._opinion, i, *asked) for i in range(len(self.sources))]
        return [ask() if s.trusted else everywhere(ask) for s, ask in zip(self.sources, work, strict=True)]

    def _opinion(
        self, i: int, prompts: Sequence[str], responses: Sequence[str], columns: dict[str, list], steps: int
    ) -> Tensor:
        s = self.sources[i]
        if not responses and not s.trusted:  # a rank without rows: nobody is asked
            return torch.zeros(0, steps) if i in self.per_token else torch.zeros(0)
        found = call(s.name, s.reward, prompts, responses, columns, steps, None if s.trusted else self.cfg.timeout)
        if found.dim() == 2:
            self.per_token.add(i)
            if self.cfg.combine != "sum":
                raise RewardError(
                    f"reward {s.name} must give one score an answer under reward.combine {self.cfg.combine}, got "
                    f"one a token; return ({len(responses)},), or use sum"
                )
        return found

    def fit(self, opinions: Sequence[Tensor]) -> None:
        """Let the normalisers see raw scores ``(B,)``."""
        for source, raw in zip(self.sources, opinions, strict=True):
            if raw.dim() == 1:
                source.normalizer.update(raw)

    def scores(self, opinions: Sequence[Tensor], stopped: Tensor, length: Tensor | None = None) -> Scores:
        """Combine raw opinions; ``stopped`` is False where the answer was cut at the cap, ``length`` in tokens (B,)."""
        whole = [(s, x) for s, x in zip(self.sources, opinions, strict=True) if x.dim() == 1]
        said = [opinion for _, opinion in whole]
        normal = said if self.cfg.normalize == "none" else [source.normalizer(x) for source, x in whole]
        token: Tensor | None = None
        for source, opinion in zip(self.sources, opinions, strict=True):
            if opinion.dim() == 2:
                token = source.weight * opinion + (0 if token is None else token)
        voters, rows = [source for source, _ in whole], len(stopped)
        combined = self._combined(normal, voters, rows)
        raw = self._combined(said, voters, rows) if self.cfg.combine in ENSEMBLES else _weighed(said, voters, rows)
        final = final_score(
            combined, stopped, clip=self.cfg.clip, missing_eos=self.cfg.missing_eos, penalty=self.cfg.penalty
        )
        if self.cfg.divide_by == "length":
            if length is None:
                raise ValueError("reward.divide_by length needs the length of every answer, got none; pass length")
            final = length_normalized(final, length)
        apart = ensemble_spread(torch.stack(normal)) if self.cfg.combine in ENSEMBLES else None
        return Scores(raw=raw, final=final, token=token, spread=apart)

    def _combined(self, scores: list[Tensor], voters: list[Source], rows: int) -> Tensor:
        """One score an answer, ``(B,)``, by ``reward.combine``."""
        rule, cfg = self.cfg.combine, self.cfg
        if rule == "sum":
            return _weighed(scores, voters, rows)
        if rule in ENSEMBLES:
            return ensemble_score(torch.stack(scores), rule=rule, k=cfg.pessimism)
        table, weights = torch.stack(scores, dim=-1), [source.weight for source in voters]
        if rule == "chebyshev":
            return chebyshev(table, weights, reference=[source.least or 0.0 for source in voters])
        first = next(i for i, source in enumerate(voters) if source.least is not None)
        return lexicographic(table, weights, first=first, least=voters[first].least or 0.0, floor=cfg.floor)

    def state(self) -> list[dict[str, float]]:
        """Normaliser statistics, for the checkpoint."""
        return [dict(vars(s.normalizer)) for s in self.sources]

    def load(self, state: Sequence[dict[str, float]]) -> None:
        """Put statistics back."""
        if len(state) != len(self.sources):
            raise ConfigError(
                f"reward.sources must be the {len(state)} of the checkpoint, got {len(self.sources)}; "
                "use the run's own config"
            )
        for source, saved in zip(self.sources, state, strict=True):
            vars(source.normalizer).update(saved)


def _weighed(scores: list[Tensor], voters: list[Source], rows: int) -> Tensor:
    return sum((v.weight * x for v, x in zip(voters, scores, strict=True)), torch.zeros(rows))


def call(
    name: str, reward: Reward, prompts: Sequence[str], responses: Sequence[str], columns: dict[str, list],
    steps: int, timeout: float | None,
) -> Tensor:  # fmt: skip
    """Run one reward under the time limit and check what it returns.

    Raises:
        RewardError: it raised, took longer than ``timeout`` seconds, or returned something that is not one finite
            number an answer ``(B,)`` or a token ``(B, T)``.
    """
    outcome: dict[str, Any] = {}

    def work() -> None:
        try:
            outcome["value"] = reward(list(prompts), list(responses), **columns)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it must reach the caller
            outcome["error"] = error

    if timeout is None:
        work()
    elif not _within(timeout, work, name):
        raise RewardError(
            f"reward {name} must answer within reward.timeout = {timeout:g} s for {len(responses)} responses, and did "
            "not; make it faster or raise reward.timeout"
        )
    if "error" in outcome:
        error = outcome["error"]
        raise RewardError(
            f"reward {name} raised {type(error).__name__}: {error} for {len(responses)} responses; "
            f"call it by hand on the prompt {prompts[0]!r} and the response {responses[0]!r}"
        ) from error
    return checked(name, outcome["value"], len(responses), steps)


def _within(seconds: float, work: Callable[[], None], name: str) -> bool:
    """Run ``work`` in a thread that is left behind if it takes too long; True if it came back."""
    thread = threading.Thread(target=work, daemon=True, name=f"reward {name}")
    thread.start()
    with standing(name, busy=True):
        thread.join(seconds)
    return not thread.is_alive()


def checked(name: str, value: Any, rows: int, steps: int) -> Tensor:
    """The reward's answer as a float tensor, or a `RewardError` that says what is wrong with it."""
    try:
        score = torch.as_tensor(value).detach().cpu()
        score = score if score.dtype == torch.float64 else score.float()
    except (TypeError, ValueError, RuntimeError) as error:
        raise RewardError(f"{name}() returned {type(value).__name__}, which is no tensor of numbers ({error}); "
                          f"return ({rows},) floats") from error  # fmt: skip
    if score.shape not in ((rows,), (rows, steps)):
        raise RewardError(
            f"{name}() returned shape {tuple(score.shape)} for {rows} responses; return ({rows},) for one score each "
            f"or ({rows}, {steps}) for one a token"
        )
    if not bool(score.isfinite().all()):
        row = int((~score.isfinite()).reshape(rows, -1).any(-1).nonzero()[0])
        raise RewardError(f"{name}() returned {score[row].tolist()} for response {row}; every score must be finite")
    return score.float()


def mask_tokens(scores: Scores, mask: Tensor) -> Tensor | None:
    """Process rewards of the tokens there are, padding at 0."""
    return None if scores.token is None else select(scores.token[:, : mask.shape[-1]], mask)
