"""Results of notebook 11 as pictures and tables: the cap times four, the remedies, lengths against π*'s, the thirds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ppo_lab.course.claims import Measured, measure
from ppo_lab.course.experiments.length import LONG, REMEDIES, REWARDS, STORY, T, change, column, story
from ppo_lab.course.experiments.length_language import LONG as LONG_TEXT
from ppo_lab.course.experiments.length_language import PLAIN, SCALES, VARIANTS, prediction
from ppo_lab.course.figures.gae_study import BLUE, GREY, ORANGE, mean, sheet
from ppo_lab.course.html import Card, show, table
from ppo_lab.metrics import metric
from ppo_lab.records import BUCKETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]
LIKE = {"mean_mood": "mean", "praise": "praise", "blame": "blame"}  # the reward on texts that can be listed


def curves_figure(rows: Rows) -> Figure:
    """Mean length as a share of the cap over the steps, an axes a reward, both caps; thin lines are seeds."""
    figure, axes = sheet(len(REWARDS))
    for ax, (reward, kind) in zip(axes, REWARDS.items(), strict=True):
        for cap, color in ((T, GREY), (LONG, ORANGE)):
            curves = column(rows, "length_curve", reward=reward, cap=cap, remedy="none")
            shares = [[x / cap for x in curve] for curve in curves]
            steps = range(1, len(shares[0]) + 1)
            for share in shares:
                ax.plot(steps, share, color=color, lw=0.7, alpha=0.4)
            ax.plot(steps, [mean(x) for x in zip(*shares, strict=True)], color=color, lw=2.4, label=f"cap {cap}")
        ax.set(ylim=(0, 1.05), xlabel="PPO step")
        ax.set_title(f"{reward} ({kind})", fontsize=10, loc="left")
    axes[0].set_ylabel("length / cap")
    axes[0].legend(loc="lower left", frameon=False, fontsize=9)
    return figure


def remedies_figure(rows: Rows, reward: str = "mean_mood") -> Figure:
    """Length, KL and score at the end of each remedy's runs, mean and 95 % interval; dashed: without remedy."""
    figure, axes = sheet(3)
    figure.subplots_adjust(left=0.11)
    for ax, (key, title) in zip(axes, (("length_end", "length, tokens"), ("kl_end", "KL, nats a review"),
                                       ("score_end", "score, as the reward gave it")), strict=True):  # fmt: skip
        found = [interval(column(rows, key, reward=reward, cap=LONG, remedy=remedy)) for remedy in REMEDIES]
        means = [m.mean for m in found]
        bars = [[m.mean - m.low for m in found], [m.high - m.mean for m in found]]
        ax.errorbar(means, range(len(means)), xerr=bars, fmt="o", color=BLUE, capsize=3)
        ax.axvline(means[0], color=GREY, ls="--", lw=1)
        ax.set_yticks(range(len(means)), [*REMEDIES] if ax is axes[0] else [""] * len(means))
        ax.set_ylim(len(means) - 0.5, -0.5)
        ax.set_title(title, fontsize=10, loc="left")
    return figure


def interval(values: Sequence[float]) -> Measured:
    """Mean and 95 % interval, no claim held against it."""
    return measure(values, least=-1e9)


def language_figure(rows: Rows) -> Figure:
    """Left: four rewards, where PPO ends and where π* is. Right: the reward that is the same for all, by suspect."""
    figure, (left, right) = sheet(2, size=(9.2, 3.3))
    figure.subplots_adjust(0.08, 0.15, 0.98, 0.9, 0.72)
    for i, worth in enumerate(SCALES):
        some = [row for row in rows if (row["worth"], row["cap"], row["variant"]) == (worth, LONG_TEXT, PLAIN)]
        names = ("reference", "π*", "PPO") if not i else (None, None, None)
        for key, color, name in zip(("reference", "best"), (GREY, ORANGE), names, strict=False):
            left.plot([i - 0.3, i + 0.3], [some[0][key]] * 2, color=color, lw=2, label=name)
        left.plot([i] * len(some), [row["end"] for row in some], "o", color=BLUE, ms=4, alpha=0.6, label=names[2])
    left.set(ylim=(0, LONG_TEXT + 0.5), ylabel="mean length, tokens")
    left.set_xticks(range(len(SCALES)), [*SCALES])
    left.legend(loc="lower left", frameon=False, fontsize=9)
    for i, variant in enumerate(VARIANTS):
        some = [row for row in rows if (row["worth"], row["variant"], row["cap"]) == ("same", variant, LONG_TEXT)]
        right.plot([row["end"] for row in some], [i] * len(some), "o", color=BLUE, ms=4, alpha=0.6)
        right.plot([row["lowest"] for row in some], [i + 0.25] * len(some), "|", color="black", ms=7)
        best = some[0]["best"]
    right.axvline(best, color=ORANGE, lw=2)
    right.set(xlim=(0, LONG_TEXT), ylim=(len(VARIANTS) - 0.4, -0.6), xlabel="mean length (bars: shortest on the way)")
    right.set_yticks(range(len(VARIANTS)), [*VARIANTS])
    right.set_title("every text worth the same", fontsize=10, loc="left")
    return figure


def verdicts(rows: Rows) -> dict[str, dict[str, str]]:
    """Of every reward and sentence of the story: the verdict, "cannot tell here" where a third stayed empty."""
    found: dict[str, dict[str, str]] = {}
    for reward in REWARDS:
        numbers = story(rows, reward)
        found[reward] = {
            key: _beyond(numbers[key], side) if len(numbers[key]) >= 5 else "cannot tell here"
            for key, (_, side) in STORY.items()
        }
    return found


def _beyond(values: Sequence[float], side: str) -> str:
    """Verdict on paired numbers that should lie above 0 ("least") or below ("most")."""
    return (measure(values, least=0.0) if side == "least" else measure(values, most=0.0)).verdict


def story_table(rows: Rows) -> None:
    """Show the verdict on every sentence of the story, a column a reward."""
    found = verdicts(rows)
    lines = [(text.split(" (")[0], *(found[reward][key] for reward in REWARDS)) for key, (text, _) in STORY.items()]
    text = "\n".join("; ".join(line) for line in lines)
    show(Card(f"The story\n{text}", table(lines, head=("", *REWARDS)), width=72))


def length_table(rows: Rows) -> None:
    """Show every kind of run: length, KL, score, share of tokens pushed down in the last third; 95 % intervals."""
    kinds = [(reward, cap, "none") for reward in REWARDS for cap in (T, LONG)]
    kinds += [("mean_mood", LONG, remedy) for remedy in REMEDIES if remedy != "none"]
    lines = []
    for reward, cap, remedy in kinds:
        where = {"reward": reward, "cap": cap, "remedy": remedy}
        before = mean(column(rows, "length_start", **where))
        cells = [_span(column(rows, key, **where), form) for key, form in
                 (("length_end", "{:.1f}"), ("kl_end", "{:.1f}"))]  # fmt: skip
        gain, pushed = change(rows, "score", **where), column(rows, "pushed_long_end", **where)
        known = [x for x in pushed if x is not None]
        cells += [_span(gain, "{:+.2f}"), _span(known, "{:.2f}") if len(known) >= 5 else "too few"]
        says = prediction(LIKE[reward], remedy) if cap == LONG else ""
        lines.append((f"{reward}, cap {cap}, {remedy}", f"{before:.1f}", *cells, says))
    head = ("run", "length at first", "at the end", "KL, nats", "score gained", "pushed down, last third", "π* says")
    text = "\n".join("; ".join(line) for line in lines)
    show(Card(f"Lengths\n{text}", table(lines, head=head), width=90))


def _span(values: Sequence[float], form: str) -> str:
    m = interval(values)
    return f"{form.format(m.mean)} ({form.format(m.low)} to {form.format(m.high)})"


def thirds_table(first: Mapping[str, Any], last: Mapping[str, Any]) -> None:
    """Show two steps of a log by thirds of the cap; numbers of a live run, so only the rows are compared text."""
    keys = ("answers", "reward_token", "ref_kl_token", "pushed_down")
    lines = []
    for key in keys:
        for bucket in BUCKETS:
            name = f"{key}_{bucket}"
            cells = [f"{row[name]:.3f}" if name in row else "no such answer" for row in (first, last)]
            lines.append((metric(name).title, *cells))
    text = ", ".join(title for title, *_ in lines)
    show(Card(f"By length: {text}", table(lines, head=("", "first step", "last step"), align="right")))
