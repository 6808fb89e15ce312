"""Exercises of the course, by name; `kill_matrix` shows that each check catches every wrong answer it knows."""

from __future__ import annotations

from difflib import get_close_matches

from torch import Tensor

from ppo_lab.course.exercises import (
    advantages,
    agreement,
    baselines,
    clipping,
    control_variate,
    endings,
    hacking,
    joint,
    kth_of_n,
    language,
    length_free,
    lengths,
    loop,
    matters,
    memory,
    middle_mean,
    pessimist,
    preferences,
    pushed,
    ranking,
    ranks,
    reinforce,
    rlhf,
    rollback,
    sampling,
    segments,
    sequence_ess,
    squashed,
    start_here,
    tool_mask,
    transfer,
    update,
    whole_loss,
)
from ppo_lab.course.exercises.exercise import Case, Exercise, Mutant
from ppo_lab.course.exercises.judge import Verdict, examine, obeyed, same
from ppo_lab.course.exercises.outcome import call

EXERCISES: dict[str, Exercise] = {
    entry.name: entry
    for entry in (
        start_here.MASKED_MEAN, reinforce.LOG_PROB, reinforce.REINFORCE, joint.JOINT_LOG_PROB,
        baselines.OPTIMAL_BASELINE, baselines.LEAVE_ONE_OUT, baselines.ACTOR_CRITIC_LOSS,
        control_variate.CONTROL_VARIATE,
        sampling.LOG_RATIO, sampling.SAMPLE_SIZE, sampling.K3, sequence_ess.SEQUENCE_ESS,
        clipping.CLIPPED_SURROGATE, clipping.CLIP_FRACTION, rollback.ROLLBACK, advantages.TD_ERRORS,
        advantages.GAE, endings.VALUE_AHEAD, endings.GAE_TICKS,
        loop.MINIBATCHES, loop.CLIPPED_VALUE_LOSS, whole_loss.PPO_TOTAL_LOSS, squashed.SQUASHED_LOGP,
        matters.DEEPEST_FALL, matters.MINIBATCH_ADVANTAGES, middle_mean.MIDDLE_MEAN,
        language.ANSWER_LOGPS, language.RESPONSE_MASK, language.KL_REWARDS, tool_mask.TOOL_MASK,
        agreement.KAPPA, preferences.PREFERENCE_LOSS, preferences.LAST_TOKEN_SCORE, ranking.RANKING_LOSS,
        rlhf.TOKEN_REWARDS, update.PPO_LOSS, rlhf.ADAPTIVE_BETA,
        transfer.STOP_BONUS,
        lengths.LENGTH_PRICE, lengths.SPREAD_SCORE, pushed.PUSHED_DOWN, length_free.LENGTH_FREE,
        hacking.BEST_OF_N, hacking.DISTINCT_N, pessimist.PESSIMISTIC_SCORE, kth_of_n.KTH_OF_N,
        memory.BYTES_PER_DEVICE, memory.PIPELINE_WAIT, memory.RECOMPUTED_BYTES, segments.SEGMENT_BYTES,
        ranks.RANK_MOMENTS, ranks.LOSS_FACTOR,
    )
}  # fmt: skip

__all__ = ["EXERCISES", "Case", "Exercise", "Mutant", "Verdict", "examine", "exercise", "kill_matrix", "of_notebook"]


def exercise(name: str) -> Exercise:
    """The exercise of that name; `ValueError` with the nearest name otherwise."""
    if name in EXERCISES:
        return EXERCISES[name]
    near = get_close_matches(name, EXERCISES, n=1) or [", ".join(EXERCISES)]
    raise ValueError(f"there is no exercise {name!r}; did you mean {near[0]}? The function must keep its name")


def of_notebook(name: str) -> list[Exercise]:
    """The exercises of a notebook, in order."""
    return [entry for entry in EXERCISES.values() if entry.notebook == name]


def kill_matrix(entry: Exercise, seed: int = 0) -> dict[str, dict[str, bool]]:
    """For each wrong answer, by name: which case catches it (of a transfer exercise: which law).

    A row of all False would mean that a check has a hole.
    """
    cases = entry.cases(seed)
    if entry.reference is None:
        given = {m.name: [call(entry, m.function, case).value for case in cases] for m in entry.mutants}
        results = {name: [Tensor() if v is None else v.tensor() for v in values] for name, values in given.items()}
        return {name: {law.text: not obeyed(law, cases, r) for law in entry.laws} for name, r in results.items()}
    right = [call(entry, entry.reference, case) for case in cases]
    return {
        mutant.name: {
            case.name: not same(call(entry, mutant.function, case), expected)
            for case, expected in zip(cases, right, strict=True)
        }
        for mutant in entry.mutants
    }
