"""What can be broken on purpose, one switch a fault, read in the real code at the place that misbehaves.

A notebook plants a fault, shows which light goes on, and takes it out again:

    with faults.planted("min_left_out"):
        list(control.Run(config))

Nothing else switches one on: no config, no environment variable, no argument of the command line. A planted fault is
seen by the code that runs inside the ``with`` block and by nobody else: not by another thread, not by another task.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches


@dataclass(frozen=True, slots=True)
class Fault:
    """One mistake that real code has made."""

    name: str
    breaks: str  # what is done instead of the right thing
    symptom: str  # what a log shows
    notebook: str  # where it is looked at

    def __post_init__(self) -> None:
        for field in ("breaks", "symptom", "notebook"):
            if not getattr(self, field).strip():
                raise ValueError(f"fault {self.name} needs {field}, got nothing; say it in one sentence")


ALL = (
    Fault(
        "min_left_out",
        "the clipped term stands alone, without the minimum that makes it pessimistic",
        "a bad step whose ratio has left the band gets no gradient and never comes back: clip_fraction grows from "
        "epoch to epoch, the policy KL runs off",
        "04_clipping",
    ),
    Fault(
        "ratio_from_probabilities",
        "the ratio is a quotient of two probabilities, not exp of a difference of logs",
        "both probabilities underflow to 0, the ratio is NaN and so is the gradient: policy_loss and first_ratio_error "
        "are NaN, every step is skipped",
        "03_importance_sampling",
    ),
    Fault(
        "ratio_outside_the_loop",
        "old log-probs are taken anew for every step, so the ratio is always 1: it was never put into the loop",
        "clip_fraction and first_ratio_error are exactly 0 in every epoch, however large epochs and rate, while "
        "policy_kl_k3 grows with every one of them: nothing is ever clipped",
        "04_clipping",
    ),
    Fault(
        "episodes_joined",
        "the sum of rewards runs on across the end of an episode, into the next one of the row",
        "returns exceed what any episode can pay; actions that end the episode soon look best, as what comes after "
        "them is counted too: episodes get shorter, the return falls",
        "01_reinforce",
    ),
    Fault(
        "baseline_attached",
        "the value in the advantage is not detached: the policy's loss pulls on the critic",
        "values settle below the returns by 1 / c1 (value_coef), the same in every state: value_mean and return_mean "
        "part while explained_variance stays healthy, and advantages are positive on average",
        "02_baselines",
    ),
    Fault(
        "limit_is_end",
        "done = terminated or truncated: an episode cut by its time limit is taken to have no future",
        "value_mean and return_mean settle together below what the policy earns, by more the shorter the limit; "
        "explained_variance stays near 0, as no state knows how soon it will be cut; where leaving pays, it is learned",
        "05_gae",
    ),
    Fault(
        "clipped_action_stored",
        "the action clipped to the environment's bounds is kept, with the log-probability of the raw one",
        "first_ratio_error is far from 0 before anything has moved: the ratio compares two different actions",
        "06_ppo",
    ),
    Fault(
        "shift_left_out",
        "log-probs are read at a token's own place, where the logits predict the next one",
        "first_ratio_error stays 0, as old and new log-probs are wrong alike; sampler_mismatch, the gap to what the "
        "sampler noted, is many nats, and entropies are those of other tokens",
        "08_language_as_mdp",
    ),
    Fault(
        "kl_before_epochs",
        "the KL that sets the penalty's next β is measured before the epochs, where the policy has not moved yet",
        "the KL read is 0, so penalty_beta only ever falls, and policy_kl_exact climbs without a brake",
        "04_clipping",
    ),
    Fault(
        "padding_attended",
        "the update's forward is given no attention mask: left padding is read as words, and positions count it",
        "sampler_mismatch is of the order of nats, not of rounding; first_ratio_error stays 0, as old and new are "
        "wrong alike; prompts of full length are fine, shorter ones teach noise",
        "07_what_matters",
    ),
    Fault(
        "padding_counted",
        "the response mask is all True in the update: what lies after the stop token has a ratio, an entropy, a value",
        "first_ratio_error is near 1 or far above it before anything has moved; the entropy is not that of the answers",
        "07_what_matters",
    ),
    Fault(
        "reference_shifted",
        "the reference's log-probs are off by one token",
        "ref_kl_sum is many nats at step 1, where the policy still is the reference; non_score_reward drowns the score",
        "07_what_matters",
    ),
    Fault(
        "reference_temperature_lost",
        "the sampler's temperature divides the policy's logits but not the reference's",
        "ref_kl_sum is off 0 at step 1, by a little: the leash pulls to a policy that never was",
        "07_what_matters",
    ),
    Fault(
        "value_pooled_mean",
        "the value head reads the mean of the answer's hidden states: one value an answer, made with its end in view",
        "the value is the same at every token of an answer and changes when a later word does; without a KL the "
        "advantages of an answer are one surprise times powers of λ, so no token is told from another",
        "08_language_as_mdp",
    ),
    Fault(
        "value_pooled_attention",
        "the value head reads an attention-weighted summary of the answer, as a classifier's CLS token is one",
        "as value_pooled_mean: one value an answer, which changes when a later word does",
        "08_language_as_mdp",
    ),
    Fault(
        "temperature_learned",
        "the temperature is a parameter that the update trains, beside the one that the sampler was told",
        "sampler_mismatch is rounding at step 1 and far above it from step 2 on: policy and sampler drift apart, while "
        "first_ratio_error stays 0",
        "08_language_as_mdp",
    ),
    Fault(
        "policy_head_redrawn",
        "the policy's output layer is drawn anew on the old trunk: what SFT taught it to say is thrown away",
        "entropy is near ln V and ref_kl_sum is tens of nats at step 1, before anything has moved; no answer stops",
        "08_language_as_mdp",
    ),
    Fault(
        "score_in_the_last_column",
        "a reward model's score is read in the last column of the batch, where shorter texts are padded",
        "the same text scores differently beside longer ones than alone, and nothing else shows: held-out accuracy "
        "stays about what it was",
        "09_sft_and_reward_model",
    ),
    Fault(
        "whitened_per_rank",
        "each rank standardises the advantages of its own rows, with its own mean and deviation",
        "nothing in one log looks odd; the same run on another number of ranks has another policy_loss and "
        "gradient_norm from its first step on",
        "17_zero3_multi_gpu",
    ),
)
FAULTS: dict[str, Fault] = {fault.name: fault for fault in ALL}
_planted: ContextVar[frozenset[str]] = ContextVar("planted", default=frozenset())


def active(name: str) -> bool:
    """Whether this fault is planted here and now. Read at the place that misbehaves.

    >>> active("min_left_out")
    False
    """
    return _known(name) in _planted.get()


@contextmanager
def planted(*names: str) -> Iterator[None]:
    """These faults are active inside the block, besides those of a block around it; however it is left, they are gone.

    Raises:
        ValueError: a name is not in `FAULTS`; nothing has been planted then.

    >>> with planted("min_left_out"):
    ...     active("min_left_out")
    True
    """
    if not names:
        raise ValueError(f"planted() needs the name of a fault, got none; known: {', '.join(FAULTS)}")
    token = _planted.set(_planted.get() | {_known(name) for name in names})
    try:
        yield
    finally:
        _planted.reset(token)


def _known(name: str) -> str:
    if name in FAULTS:
        return name
    near = get_close_matches(str(name), FAULTS, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(FAULTS)}"
    raise ValueError(f"{name!r} is not a fault; {hint}")
