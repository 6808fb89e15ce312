"""What a step did to short, middling and long answers: fields of `LengthMetrics`."""

from ppo_lab.metrics.metric import Metric

_THIRD = {"short": "first", "middle": "second", "long": "last"}
_TOKENS = "valid tokens of the answers in that third"
_MEAN = "mean over the tokens of all ranks in that third; absent where no answer is there"


def _entries(bucket: str, third: str) -> tuple[Metric, ...]:
    where = f"answers in the {third} third of the cap"
    return (
        Metric(
            name=f"answers_{bucket}", title=f"share of {bucket} answers", group="length", unit="share",
            formula=f"{where} / answers", reduction="mean over the answers of all ranks", mask="whole sequences",
            reads="How many answers the figures of this third rest on. A drift between thirds is one of the length.",
            rows=("B8", "C16"),
        ),
        Metric(
            name=f"reward_token_{bucket}", title=f"reward a token, {bucket}", group="length", unit="reward per token",
            formula=f"Σ_t r_t / tokens, {where}", reduction=_MEAN, mask=_TOKENS,
            reads="Score and KL together, a token. Lower for long answers alone is arithmetic where one score is "
            "shared by more tokens; negative for long alone: they are being taught to stop.",
            rows=("B8", "C16"),
        ),
        Metric(
            name=f"ref_kl_token_{bucket}", title=f"KL a token, {bucket}", group="length", unit="nats per token",
            formula=f"Σ_t (log π − log π_ref) / tokens, {where}", reduction=_MEAN, mask=_TOKENS,
            estimates="KL(π‖π_ref) from samples of π",
            reads="Equal in all thirds: the policy changed each token alike, and the sum grows with length. Below 0 in "
            "one third: those answers became rarer, which is how a change of length shows.",
            rows=("B8", "C16"),
        ),
        Metric(
            name=f"pushed_down_{bucket}", title=f"tokens pushed down, {bucket}", group="length", unit="share",
            formula=f"share of tokens with Â < 0 as the update sees it, {where}", reduction=_MEAN, mask=_TOKENS,
            reads="About a half in every third is healthy. Far above a half for long answers and below for short "
            "ones: length itself is being unlearned; ask first whether the reward wants that.",
            rows=("B8", "C16"),
        ),
    )  # fmt: skip


LENGTHS = tuple(entry for bucket, third in _THIRD.items() for entry in _entries(bucket, third))
