"""Settings of rewards: how a reward model is trained, and how several opinions become one score."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from .base import Config

ENSEMBLES = ("mean", "min", "mean_minus_std")  # rules whose sources judge the same thing

class RewardModelConfig(Config):
    """Bradley–Terry training of a scalar reward model on preference pairs."""

    path: str | None = Field(None, description="Start from this sequence-classification or encoder model; None: SFT.")
    pairs: PositiveInt = Field(7500, description="Training pairs. Fewer: the model is good or useless by luck.")
    answers: int = Field(
        4, ge=2, description="Answers a prompt, each compared with each. Higher: more pairs from each text read."
    )
    trainable_layers: PositiveInt | None = Field(
        None, description="Train only the last so many blocks and the score; None: all. Higher: slower, fits more."
    )
    held_out_pairs: PositiveInt = Field(1000, description="Pairs kept for accuracy, margin and calibration.")
    labels: str = Field("vader", description="Who prefers: vader, ratings (human), or module:function on texts.")
    noise: float = Field(0.15, ge=0, description="Logistic label noise in units of the label score; 0: no mistakes.")
    min_gap: NonNegativeFloat = Field(0.0, description="Least difference of the label scores within a pair.")
    epochs: PositiveInt = Field(4, description="Passes over the pairs. Higher: better fit, then over-fitting.")
    batch: PositiveInt = Field(64, description="Pairs a step. Higher: smoother steps that cost more each.")
    rate: PositiveFloat = Field(
        3e-3, description="Peak rate, warm-up then cosine. Higher: leaves the first plateau sooner, then diverges."
    )
    weight_decay: NonNegativeFloat = Field(0.01, description="L2 of the reward model. Higher: smaller scores.")
    center: NonNegativeFloat = Field(0.01, description="Weight of (r_w + r_l)², which pins the free constant.")
    members: PositiveInt = Field(
        1, description="Models of an ensemble, each with a head and a data order of its own; see reward.combine. "
        "Higher: surer of where they disagree, as many times the cost."
    )
    member_pairs: Literal["same", "own"] = Field(
        "same", description="same: all members learn from the same pairs; own: each draws pairs of its own, which "
        "takes as many times the labels and sets them further apart."
    )
    threshold: float = Field(0.75, ge=0.5, le=1, description="Held-out pair accuracy below which PPO does not start.")
    allow_weak_reward_model: bool = Field(False, description="Start PPO all the same.")


class RewardSource(Config):
    """One reward; several are summed after their weights."""

    kind: Literal["model", "callable", "vader", "language"] = Field(
        "model", description="model: a reward model; callable: module:function or file.py:function; vader: the lexicon."
    )
    path: str | None = Field(None, description="Model folder or hub name, or the callable; None: the trained one.")
    weight: float = Field(1.0, description="Multiplies this reward. Higher: it counts more against the others.")
    least: float | None = Field(
        None, description="What the normalised score should reach. combine chebyshev: distances count from here (None: "
        "0); constraint: the one source that has it comes first. Higher: stricter.",
    )  # fmt: skip


class RewardConfig(Config):
    """From several opinions to one score a response: normalise, weigh, sum, clip, missing-EOS rule."""

    sources: tuple[RewardSource, ...] = Field((RewardSource(),), min_length=1, description="What is combined.")
    combine: Literal["sum", "mean", "min", "mean_minus_std", "chebyshev", "constraint"] = Field(
        "sum",
        description="From the normalised scores of all sources and members to one: sum, after their weights; mean, min "
        "or mean - pessimism * std of an ensemble, unweighted; of several objectives: chebyshev, the worst weighted "
        "distance from least; constraint, the source with least first (core.several).",
    )
    floor: float = Field(
        -10.0, description="combine constraint: what the other rewards hardly ever fall below; a violation scores "
        "less. Higher: a smaller step at the border.",
    )  # fmt: skip
    pessimism: NonNegativeFloat = Field(
        1.0, description="k of mean_minus_std. Higher: what the members disagree on is worth less."
    )
    normalize: Literal["none", "reference", "running"] = Field(
        "reference",
        description="reference: mean 0 and deviation 1 on answers of the reference (Ziegler et al. 2019); running: "
        "over all scores so far.",
    )
    references: PositiveInt = Field(
        256, description="Answers of the reference that fix gain and bias. More: a surer scale, more time at the start."
    )
    clip: PositiveFloat | None = Field(None, description="Bound on |score|. Lower: outliers count less.")
    missing_eos: Literal["none", "subtract", "replace"] = Field("none", description="Rule for answers cut at the cap.")
    penalty: NonNegativeFloat = Field(1.0, description="Subtracted, or -penalty is the score (missing_eos).")
    divide_by: Literal["none", "length"] = Field(
        "none",
        description="length: score / tokens of the answer, after the missing-EOS rule. It lowers what long answers get "
        "and what a bad one loses; weigh the source by the usual length to keep the scale.",
    )
    placement: Literal["last", "spread", "sentences"] = Field(
        "last",
        description="Where the score stands: on the last token; an equal share on each; or on each sentence's last "
        "token what the sentence changed (the reward is asked once a sentence). A row sums to the same in all three.",
    )
    potential: str | None = Field(
        None, description="Shaping: vader or module:function, Φ(prompts, answers so far) -> (B,). A token is paid what "
        "it adds to Φ, and the last one -Φ, which keeps the optimum (ppo.gamma 1). Asked once a token; None: off.",
    )  # fmt: skip
    potential_weight: PositiveFloat = Field(1.0, description="Multiplies the potential. Higher: louder, same optimum.")
    timeout: PositiveFloat = Field(
        300.0,
        description="Seconds a reward callable may take for one batch, also in an endless loop; then all processes end "
        "with a checkpoint and its name. Higher: slower rewards may finish.",
    )
    batch: PositiveInt = Field(64, description="Rows in one forward of a reward model.")


def check_ensemble(reward_model: RewardModelConfig, reward: RewardConfig) -> None:
    """Refuse combinations of members, sources and rule that make no sense."""
    members, rule, sources = reward_model.members, reward.combine, reward.sources
    if members > 1 and all(s.kind != "model" or s.path is not None for s in sources):
        raise ValueError(
            f"reward_model.members must be 1 where no source is the trained reward model, got {members}; add a "
            "source of kind model without a path to reward.sources"
        )
    if members > 1 and rule not in ENSEMBLES:
        raise ValueError(
            f"reward.combine must be mean, min or mean_minus_std with reward_model.members {members} (they judge "
            f"the same thing), got {rule}; use mean"
        )
    if rule in ENSEMBLES:
        voters = len(sources) + (members - 1) * sum(s.kind == "model" and s.path is None for s in sources)
        if voters < 2:
            raise ValueError(
                f"reward.combine {rule} needs at least two scores, got {voters}; raise reward_model.members, "
                "add to reward.sources, or use sum"
            )
        weight = next((s.weight for s in sources if s.weight != 1), None)
        if weight is not None:
            raise ValueError(
                f"reward.sources must all have weight 1 under reward.combine {rule} (its members count alike), got "
                f"{weight:g}; leave the weights out, or use sum"
            )


def check_objectives(reward: RewardConfig) -> None:
    """Refuse several objectives that lack a weight or a constraint."""
    rule, sources = reward.combine, reward.sources
    if rule == "chebyshev" and (len(sources) < 2 or min(s.weight for s in sources) <= 0):
        raise ValueError(
            f"reward.combine chebyshev needs at least two sources of positive weight, got weights "
            f"{[s.weight for s in sources]}; leave out what is not to count"
        )
    first = [i for i, s in enumerate(sources) if s.least is not None]
    if rule == "constraint" and (len(first) != 1 or len(sources) < 2):
        raise ValueError(
            f"reward.combine constraint needs exactly one of at least two sources with least, got {len(first)} of "
            f"{len(sources)}; set reward.sources.N.least where it must be kept"
        )
    if rule not in ("chebyshev", "constraint") and first:
        raise ValueError(
            f"reward.sources.{first[0]}.least is for reward.combine chebyshev or constraint, got {rule}; remove it"
        )
