"""How good the policy is on prompts it never trained on: fields of `EvalMetrics`."""

from ppo_lab.metrics.metric import Metric, peers

_HELD_OUT = "mean over held-out prompts, the same ones every time"
_TOKENS = "valid response tokens"

EVALUATION = (
    Metric(
        name="eval_score", title="score, held out", group="evaluation", unit="reward",
        formula="mean R(x, y), y ~ π", reduction=_HELD_OUT, mask="whole sequences",
        reads="The score on prompts training never used, from the same noise every time. Below score_mean: the "
        "policy learned the training prompts.",
        aliases=peers(openrlhf="eval_{dataset}_pass1", verl="val-core/{dataset}/reward/mean@{n}",
                      sb3="eval/mean_reward"),
        rows=("G", "D18"),
    ),
    Metric(
        name="eval_ref_kl_sum", title="KL, held out", group="reference", unit="nats per sequence",
        formula="mean_sequences Σ_t (log π − log π_ref), k1", reduction=_HELD_OUT, mask=_TOKENS,
        estimates="KL(π‖π_ref) from samples of π", healthy=(0.0, 10.0), source="as ref_kl_sum",
        reads="As ref_kl_sum.",
        rows=("B4", "D18"),
    ),
    Metric(
        name="eval_objective", title="score − β₀·KL", group="evaluation", unit="reward",
        formula="eval_score − β₀ · eval_ref_kl_sum", reduction=_HELD_OUT, mask="whole sequences",
        reads="What the run maximises, at the β it started with. The best checkpoint has the highest. Falling "
        "while eval_score rises: the gain is bought with KL.",
        rows=("G", "D18"),
    ),
    Metric(
        name="eval_response_length", title="length, held out", group="length", unit="tokens",
        formula="mean tokens up to and with the stop", reduction=_HELD_OUT, mask=_TOKENS,
        reads="As response_length.",
        aliases=peers(openrlhf="eval_response_length_mean", sb3="eval/mean_ep_length"),
        rows=("B8", "D8"),
    ),
    Metric(
        name="eval_score_greedy", title="score, greedy", group="evaluation", unit="reward",
        formula="mean R(x, argmax π)", reduction=_HELD_OUT, mask="whole sequences",
        reads="The same without sampling noise. Far above eval_score: the policy is good only where it is sure.",
        rows=("G",),
    ),
    Metric(
        name="eval_gold", title="gold, held out", group="evaluation", unit="gold",
        formula="mean gold reward, y ~ π", reduction=_HELD_OUT, mask="whole sequences",
        reads="The quality that counts, never used to choose. Falling while eval_score rises: reward hacking; "
        "raise β, take an earlier checkpoint.",
        rows=("B11", "D3", "D18"),
    ),
    Metric(
        name="eval_gold_greedy", title="gold, greedy", group="evaluation", unit="gold",
        formula="mean gold reward of argmax π", reduction=_HELD_OUT, mask="whole sequences",
        reads="As eval_gold, without sampling noise.",
        rows=("G",),
    ),
    Metric(
        name="eval_grammatical", title="grammatical", group="evaluation", unit="share",
        formula="share of answers that parse", reduction=_HELD_OUT, mask="whole sequences",
        reads="Fluency, where the corpus has a grammar. Compare with step 0: a loss of more than a few points is "
        "the price of the score; raise β.",
        rows=("B11", "D3"),
    ),
    Metric(
        name="eval_ema_score", title="score of the average", group="evaluation", unit="reward",
        formula="as eval_score, y ~ π_θ̄ with θ̄ the moving average of the weights", reduction=_HELD_OUT,
        mask="whole sequences",
        reads="Present with policy.ema. The average lags 1 / (1 − d) steps behind and is smoother: above eval_score "
        "late in a run, the last steps are noise, so export the average; far below: the decay is too high.",
        rows=("B13",),
    ),
    Metric(
        name="eval_ema_ref_kl_sum", title="KL of the average", group="reference", unit="nats per sequence",
        formula="mean_sequences Σ_t (log π_θ̄ − log π_ref), k1", reduction=_HELD_OUT, mask=_TOKENS,
        estimates="KL(π_θ̄‖π_ref) from samples of π_θ̄", healthy=(0.0, 10.0), source="as ref_kl_sum",
        reads="As eval_ref_kl_sum, of the average; usually lower, as it lags behind.",
        rows=("B13",),
    ),
    Metric(
        name="eval_ema_objective", title="average: score − β₀·KL", group="evaluation", unit="reward",
        formula="eval_ema_score − β₀ · eval_ema_ref_kl_sum", reduction=_HELD_OUT, mask="whole sequences",
        reads="As eval_objective, of the average. It takes no part in choosing the best checkpoint.",
        rows=("B13",),
    ),
    Metric(
        name="eval_ema_gold", title="gold of the average", group="evaluation", unit="gold",
        formula="as eval_gold, y ~ π_θ̄", reduction=_HELD_OUT, mask="whole sequences",
        reads="As eval_gold, of the average.",
        rows=("B13", "B11"),
    ),
)
