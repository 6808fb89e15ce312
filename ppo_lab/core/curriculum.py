"""A curriculum: which difficulty comes next, from how often the present one is solved."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from ppo_lab.core._checks import check_range


@dataclass(frozen=True, slots=True, kw_only=True)
class Curriculum:
    r"""Levels 0 … L-1 of rising difficulty. A value: `after` gives the next one, nothing changes in place.

    Tasks are drawn from the present level. Near its border, where the success rate m is within ``band`` of
    ``advance``, a share of the next level's is mixed in, rising linearly to ``mixed``:

    .. math:: share = mixed \cdot clip\big((m - advance + band) / band, 0, 1\big)

    At ``advance`` the next level begins, and the same share of the level before stays for its first steps (until m is
    known). Progress never goes back; on the last level nothing is mixed in.

    Args:
        levels: L. More: gentler steps, later at the full task.
        advance: success rate at which the next level begins. Higher: surer, slower.
        band: width of the border below ``advance``. Higher: mixes sooner; 0 mixes never.
        mixed: most of the other level's share in a batch, in [0, 1].
        memory: weight of the past in the running success rate, in [0, 1). Higher: calmer, slower to see success.
        level, success: where it stands; success None: nothing of this level was seen yet.

    Source: Bengio et al. 2009, Curriculum learning; five levels at 80 % are a rule of thumb from write-ups.

    >>> c = Curriculum().after(0.7, episodes=8)
    >>> c.level, {k: round(share, 3) for k, share in c.mixture().items()}
    (0, {0: 0.75, 1: 0.25})
    >>> c.after(1.0, episodes=8).level
    1
    """

    levels: int = 5
    advance: float = 0.8
    band: float = 0.2
    mixed: float = 0.5
    memory: float = 0.5
    level: int = 0
    success: float | None = None

    def __post_init__(self) -> None:
        check_range("levels", self.levels, 1, 10**6, fix="5 are usual")
        check_range("advance", self.advance, 0, 1, fix="0.8 is usual")
        check_range("band", self.band, 0, 1, fix="0.2 is usual")
        check_range("mixed", self.mixed, 0, 1, fix="0.5 is usual")
        check_range("memory", self.memory, 0, 1 - 1e-12, fix="0.5 is usual")
        check_range("level", self.level, 0, self.levels - 1, fix="start at 0")

    def mixture(self) -> dict[int, float]:
        """The share of each level in the next batch; sums to 1, levels without a share are left out."""
        if self.success is None and self.level > 0 and self.band > 0 and self.level < self.levels - 1:
            other, share = self.level - 1, self.mixed
        elif self.success is None or self.level == self.levels - 1 or self.band == 0:
            return {self.level: 1.0}
        else:
            along = min(max((self.success - self.advance + self.band) / self.band, 0.0), 1.0)
            other, share = self.level + 1, self.mixed * along
        return {k: s for k, s in {self.level: 1 - share, other: share}.items() if s > 0}

    def after(self, solved: float, *, episodes: int) -> Curriculum:
        """The next state, once ``solved`` of so many tasks *of the present level* were; none seen changes nothing."""
        check_range("solved", solved, 0, 1, fix="give a share")
        if episodes < 1:
            return self
        found = solved if self.success is None else self.memory * self.success + (1 - self.memory) * solved
        if found < self.advance or self.level == self.levels - 1:
            return replace(self, success=found)
        return replace(self, level=self.level + 1, success=None)

    def state(self) -> dict[str, float | int | None]:
        """Plain data for a checkpoint; ``Curriculum(**state)`` is the same one."""
        return asdict(self)
