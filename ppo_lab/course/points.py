"""The sixteen-point check of a PPO implementation: what to look at, how it fails, which metric shows it, where it ends.

After Engstrom et al. 2020 and Huang et al. 2022, 2024. Notebook 07 turns fourteen of them, one at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ppo_lab.course.html import Card, show, table


@dataclass(frozen=True, slots=True)
class Point:
    """One point. ``signals`` are names of the metric registry; ``notebook`` is where it is looked at."""

    id: str
    check: str
    fails: str
    signals: tuple[str, ...]
    ends: str  # where it stops applying
    notebook: str = "07_what_matters"

    @property
    def elsewhere(self) -> bool:
        """Whether it has a notebook of its own."""
        return self.notebook != "07_what_matters"


POINTS = (
    Point("C1", "Advantages have mean 0 and deviation 1, and their scope is chosen: minibatch or rollout.",
          "With a mean above 0 every action is pushed up; in a small minibatch mean and deviation are noise.",
          ("advantage_mean", "advantage_std"),
          "Adam cancels a constant scale by itself; with groups of one answer there is no deviation."),
    Point("C2", "The value clip is wide in units of the return, or off.",
          "The critic may move by the clip a rollout only: returns grow, it falls behind.",
          ("value_clip_fraction", "value_loss", "explained_variance"),
          "Returns scaled to about 1, as in RLHF, fit a clip of 0.2."),
    Point("C3", "Rewards reach the learner on a scale near 1.",
          "Value errors and gradients in the hundreds; the clipped norm leaves the critic crawling.",
          ("return_mean", "value_loss", "gradient_norm_max", "score_std"),
          "Rewards that are near 1 already: then scaling adds only a moving target."),
    Point("C4", "Attention mask and positions follow the padding, in every forward.",
          "Padding is read as words; old and new are wrong alike, so the ratio looks right.",
          ("sampler_mismatch", "tokens"),
          "Batches without padding; control."),
    Point("C5", "The rate falls to 0, or it is small from the start.",
          "A run that has learned it loses it again.",
          ("actor_rate", "policy_kl_exact"),
          "Runs without an end; a KL target does some of it."),
    Point("C6", "λ fits the critic.",
          "λ 0 believes a critic that knows nothing yet; λ 1 pays in variance.",
          ("advantage_std", "explained_variance"),
          "One reward at the end and γ 1: all of the credit must come from the critic or λ near 1."),
    Point("C7", "A rollout is used several times, not too often.",
          "Once: samples are wasted. Too often: the policy leaves the samples' reach.",
          ("policy_kl_exact", "clip_fraction", "early_stop"),
          "Where sampling is cheap and updates are dear, once is right."),
    Point("C8", "The ratio is exp(log π − log π_old).",
          "A quotient of probabilities is 0/0 where both underflow: NaN, and every step is skipped.",
          ("ratio_max", "first_ratio_error"),
          "Single choices with likely actions: there both ways give the same number."),
    Point("C9", "Only response tokens enter ratio, KL, entropy and advantage.",
          "Padding has a ratio, an entropy and an advantage; averages are diluted.",
          ("first_ratio_error", "tokens", "entropy"),
          "Answers that all have one length."),
    Point("C10", "The reference reads the same tokens, shift, template and temperature.",
          "The leash pulls to a policy that never was.",
          ("ref_kl_sum", "non_score_reward"),
          "β 0; control."),
    Point("C11", "The entropy bonus is small beside standardised advantages, or left out.",
          "Too large: dithering pays. Too small where rewards are rare: the policy commits too early.",
          ("entropy", "distinct_2"),
          "RLHF: the KL to the reference already holds the entropy up."),
    Point("C12", "The norm of the gradient is limited, and logged before the limit.",
          "One minibatch throws the policy far away.",
          ("gradient_norm", "gradient_norm_max"),
          "Adam rescales steady gradients anyway; spikes are what the limit is for."),
    Point("C13", "The epochs stop when the policy KL passes its target.",
          "Without a limit many epochs run off; with a tight one most of an update is skipped.",
          ("early_stop", "policy_steps", "policy_kl_k3"),
          "Few epochs at a small rate never reach it."),
    Point("C14", "All randomness hangs on the seed: sampling, shuffling, dropout, ranks.",
          "A result cannot be had again; a lucky seed looks like progress.",
          ("step",),
          "Another thread count or machine sums in another order: other bits."),
    Point("C15", "Statistics are those of all ranks together.",
          "Each rank whitens its own advantages; policies of different versions are mixed.",
          ("advantage_mean", "advantage_std"),
          "One process.", "17_zero3_multi_gpu"),
    Point("C16", "Length does not earn or cost by itself.",
          "Answers shrink or swell while the score stays.",
          ("response_length", "ref_kl_token"),
          "Episodes whose length is the reward, as CartPole.", "11_kl_and_length"),
)  # fmt: skip
HEAD = ("", "what to check", "how it fails", "the log shows", "where it stops applying")


def lines(ids: Sequence[str] = ()) -> list[tuple[str, str, str, str, str]]:
    """Rows of the table; all points, or those asked for.

    Raises:
        ValueError: an id that is no point.
    """
    if unknown := {*ids} - {point.id for point in POINTS}:
        raise ValueError(f"points are C1 to C16, got {', '.join(sorted(unknown))}; fix the id")
    chosen = [point for point in POINTS if not ids or point.id in ids]
    return [
        (p.id, p.check, p.fails, ", ".join(p.signals) + (f" (notebook {p.notebook[:2]})" if p.elsewhere else ""),
         p.ends)
        for p in chosen
    ]  # fmt: skip


def check_list(*ids: str) -> None:
    """Show the check as a table: all sixteen points, or those asked for."""
    found = lines(ids)
    text = "\n".join(f"{id} {check} Log: {signals}." for id, check, _, signals, _ in found)
    show(Card(f"The {len(found)}-point check\n{text}", table(found, head=HEAD), width=76))
