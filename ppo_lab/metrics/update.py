"""What one `ppo_update` did: fields of `UpdateMetrics`."""

from ppo_lab.metrics.metric import Metric, peers

_ALL = "mean over valid tokens of all ranks and of every minibatch of every epoch"
_LOSS = "weights of ppo.reduction over each minibatch of all ranks, then the mean over optimizer steps"
_TOKENS = "valid response tokens"

UPDATE = (
    Metric(
        name="policy_loss", title="policy loss", group="loss", unit="",
        formula="−mean_t min(r_t A_t, clip(r_t, 1−ε, 1+ε) A_t), r_t = π(y_t)/π_old(y_t)", reduction=_LOSS,
        mask=_TOKENS,
        reads="Near 0 by construction, since advantages are standardised, and a little below 0 as the update "
        "gains. Its level says nothing about quality. Large swings go with clip_fraction near 1: lower the actor "
        "rate.",
        aliases=peers(trl="loss/policy_avg", openrlhf="policy_loss", verl="actor/pg_loss",
                      cleanrl="losses/policy_loss", sb3="train/policy_gradient_loss"),
        alias_notes="CleanRL logs the last minibatch only.",
        rows=("A6", "A10"),
    ),
    Metric(
        name="value_loss", title="value loss", group="loss", unit="reward²",
        formula="mean_t ½ max((V_t−G_t)², (clip(V_t, V_old±ε_v)−G_t)²); without value clipping ½ (V_t−G_t)²",
        reduction=_LOSS, mask=_TOKENS,
        reads="Should fall, then follow the spread of the returns. Rising while explained_variance falls: the "
        "critic lags behind the policy; raise the critic rate, or warm it up first. Scales with the square of the "
        "reward.",
        aliases=peers(trl="loss/value_avg", openrlhf="critic_loss", verl="critic/vf_loss",
                      cleanrl="losses/value_loss", sb3="train/value_loss"),
        alias_notes="Stable-Baselines3 leaves out the ½: its value is twice ours. CleanRL logs the last minibatch "
        "only.",
        rows=("A9", "C2", "D4"),
    ),
    Metric(
        name="entropy", title="entropy", group="entropy", unit="nats per token",
        formula="mean_t −Σ_v π(v) log π(v)", reduction=_ALL, mask=_TOKENS,
        reads="At most ln V. A slow fall is learning. A fall to 0 is collapse: every answer alike; raise β or the "
        "entropy bonus, lower the rate. A rise with falling score: the policy is dissolving; lower the rate.",
        aliases=peers(trl="policy/entropy_avg", openrlhf="entropy_loss", verl="actor/entropy",
                      cleanrl="losses/entropy", sb3="train/entropy_loss"),
        alias_notes="Stable-Baselines3 logs −entropy. TRL's policy/entropy_avg averages over padding too; its "
        "objective/entropy is another quantity, −Σ_t log π(y_t) a sequence. OpenRLHF logs it only with an entropy "
        "term.",
        rows=("A10", "C11", "D5"),
    ),
    Metric(
        name="policy_kl_k1", title="policy KL, k1", group="step", unit="nats per token",
        formula="mean_t (log π_old − log π)", reduction=_ALL, mask=_TOKENS,
        estimates="KL(π_old‖π) from samples of π_old; unbiased, may be negative", healthy=(-0.1, 0.1),
        source="the reach of k3, with noise to either side",
        reads="How far the update moved from the policy that sampled. Clearly negative for many steps: the "
        "samples are not π_old's. Not the distance from the reference. Too high: fewer epochs or a lower rate.",
        aliases=peers(openrlhf="ppo_kl", verl="actor/ppo_kl", cleanrl="losses/old_approx_kl"),
        alias_notes="CleanRL logs the last minibatch only.",
        rows=("C7", "D1", "D19"),
    ),
    Metric(
        name="policy_kl_k3", title="policy KL, k3", group="step", unit="nats per token",
        formula="mean_t (r_t − 1 − log r_t)", reduction=_ALL, mask=_TOKENS,
        estimates="KL(π_old‖π) from samples of π_old; unbiased, never negative", healthy=(0.0, 0.1),
        source="our embedded runs, without a target KL; targets in use are a tenth of it (Spinning Up: 0.01)",
        reads="As k1 with less noise, and the number that early stopping reads. A jump: the step was too big; "
        "lower the rate, the epochs or ε. Steadily 0: nothing moves; raise the rate.",
        aliases=peers(trl="policy/approxkl_avg", cleanrl="losses/approx_kl", sb3="train/approx_kl"),
        alias_notes="TRL logs k2, ½(log r)², averaged over padding too, so short answers dilute it. CleanRL logs "
        "the last minibatch, Stable-Baselines3 the mean over the last epoch it ran.",
        rows=("A7", "C13", "D1", "D16", "D19"),
    ),
    Metric(
        name="clip_fraction", title="outside the clip band", group="clip", unit="share",
        formula="share of tokens with r_t < 1−ε or r_t > 1+ε", reduction=_ALL, mask=_TOKENS, healthy=(0.0, 0.3),
        source="rule of thumb for ε 0.2",
        reads="How many tokens left the trust band. Above 0.3 for many steps: the same rollout is used too often "
        "or the rate is too high; fewer epochs, lower rate. Exactly 0 for long: ε never binds.",
        aliases=peers(cleanrl="losses/clipfrac", sb3="train/clip_fraction"),
        rows=("A6", "C7", "D2", "D16"),
    ),
    Metric(
        name="active_clip_fraction", title="clipped, no gradient", group="clip", unit="share",
        formula="share of tokens with clip(r_t) A_t < r_t A_t", reduction=_ALL, mask=_TOKENS, healthy=(0.0, 0.2),
        source="half to two thirds of clip_fraction",
        reads="Tokens whose gradient the clip switched off: outside the band on the side their advantage pushes "
        "to. At most clip_fraction, often half of it. Too high: most of the batch no longer teaches; fewer epochs.",
        aliases=peers(trl="policy/clipfrac_avg", openrlhf="ppo_clip_ratio", verl="actor/pg_clipfrac"),
        alias_notes="This is what language frameworks call clip fraction; control frameworks log clip_fraction.",
        rows=("A6", "D2"),
    ),
    Metric(
        name="value_clip_fraction", title="value clipped", group="clip", unit="share",
        formula="share of tokens whose clipped value error is the larger one", reduction=_ALL, mask=_TOKENS,
        healthy=(0.0, 0.4), source="our embedded runs",
        reads="Tokens on which the value clip ruled. High: the critic wants to move further a rollout than the "
        "clip lets it; widen the clip, or check that the reward scale has not changed.",
        aliases=peers(trl="val/clipfrac_avg", verl="critic/vf_clipfrac"),
        rows=("A9", "C2"),
    ),
    Metric(
        name="ratio_max", title="largest ratio", group="ratio", unit="", formula="max_t π(y_t)/π_old(y_t)",
        reduction="maximum over valid tokens of all ranks and of every minibatch of every epoch", mask=_TOKENS,
        healthy=(1.0, 50.0), source="our embedded runs reach 40 in the steps that move most",
        reads="The single most extreme token. Hundreds: the old log-probs are not those of the sampling policy "
        "(temperature, dropout, padding), or a step was far too big. Look at first_ratio_error before the rate.",
        alias_notes="TRL's val/ratio is the mean ratio, over padding too, and val/ratio_var the variance of those "
        "means.",
        rows=("A3", "C8", "D7"),
    ),
    Metric(
        name="first_ratio_error", title="ratio error at start", group="ratio", unit="",
        formula="max_t |π(y_t)/π_old(y_t) − 1| before the first optimizer step",
        reduction="maximum over valid tokens of all ranks, first minibatch of the first epoch", mask=_TOKENS,
        healthy=(0.0, 1e-4), source="float32: 0 to 1e-6 with old_logp recomputed, 1e-5 from a key-value cache",
        reads="Nothing has moved yet, so it must be 0 up to rounding. Anything else is a bug, not a setting: "
        "dropout on, another temperature, shifted positions, a wrong mask. A bfloat16 cache reaches 0.26.",
        rows=("B3", "C8", "D7"),
    ),
    Metric(
        name="log_ratio_histogram", title="log-ratio histogram", group="ratio", unit="tokens",
        formula="counts of log r_t in 41 bins of width 0.1 around 0, from −2 to 2, the ends open",
        reduction="sum over ranks and over every minibatch of every epoch", mask=_TOKENS,
        reads="A needle at 0 with thin shoulders is a small step. Fat tails or a second hump: a few tokens move "
        "very far; fewer epochs, lower rate. Mass in the open ends: see ratio_max.",
        rows=("A3", "D7"),
    ),
    Metric(
        name="gradient_norm", title="gradient norm", group="gradient", unit="",
        formula="‖(∇actor, ∇critic)‖₂ before clipping",
        reduction="mean over the optimizer steps of this update, gradients summed over ranks",
        mask="all trained parameters, both groups", healthy=(1e-3, 10.0),
        source="0.1 to 1 is usual; outside of this band is an alarm",
        reads="Rising by factors: instability ahead; lower the rate, warm up, check the reward scale. Above the "
        "clip norm every step has the same length and only its direction counts. Near 0: nothing is learned.",
        aliases=peers(openrlhf="actor_grad_norm", verl="actor/grad_norm"),
        alias_notes="verl and OpenRLHF log actor and critic apart (critic/grad_norm, critic_grad_norm); ours is "
        "one norm over both.",
        rows=("C12", "D17", "E6"),
    ),
    Metric(
        name="gradient_norm_max", title="largest gradient norm", group="gradient", unit="",
        formula="max over optimizer steps of ‖(∇actor, ∇critic)‖₂ before clipping",
        reduction="maximum over the optimizer steps of this update", mask="all trained parameters, both groups",
        healthy=(1e-3, 10.0), source="as gradient_norm",
        reads="One minibatch can explode while the mean looks calm. A spike: find the sample (very long, or an "
        "extreme score); clip scores, keep gradient clipping on.",
        rows=("D17", "E6"),
    ),
    Metric(
        name="optimizer_steps", title="optimizer steps", group="gradient", unit="steps",
        formula="epochs × minibatches", reduction="count, the same on every rank", mask="none",
        reads="Constant. Fewer than epochs × minibatches: minibatches were skipped.",
        alias_notes="Stable-Baselines3's train/n_updates counts epochs since the start.",
        rows=("A11", "E9"),
    ),
    Metric(
        name="policy_steps", title="policy steps", group="gradient", unit="steps",
        formula="optimizer steps at which the actor's rate was above 0", reduction="count, the same on every rank",
        mask="none",
        reads="Below optimizer_steps where the KL limit ended the policy's part, 0 while the critic warms up. Low "
        "for many steps: most of the update is wasted; lower the rate rather than raise the limit.",
        rows=("C13",),
    ),
    Metric(
        name="early_stop", title="stopped early", group="step", unit="0 or 1",
        formula="1 if k3 of a minibatch passed 1.5 × target, else 0",
        reduction="decided once on sums over all ranks", mask="none",
        reads="Now and then is the brake doing its work. Every step: the rate or the number of epochs is too high.",
        rows=("C13", "D16"),
    ),
    Metric(
        name="ref_kl_loss", title="reference KL in the loss", group="loss", unit="nats per token",
        formula="mean_t of the chosen estimator of KL(π‖π_ref), before β", reduction=_ALL, mask=_TOKENS,
        estimates="KL(π‖π_ref) from samples of π_old",
        reads="Present where the KL stands in the loss and not in the reward. Read it as ref_kl_token; it rises "
        "inside an update as the policy moves.",
        aliases=peers(openrlhf="kl", verl="actor/kl_loss"),
        alias_notes="OpenRLHF's kl is this only with use_kl_loss; otherwise it is ref_kl_token.",
        rows=("B4", "D19"),
    ),
    Metric(
        name="ptx_loss", title="pre-training loss", group="loss", unit="nats per token",
        formula="−mean_t log π(x_t | x_<t) on texts of the corpus, before γ (ppo.ptx_coef)",
        reduction="mean over the tokens of a minibatch's texts, then over the steps that moved the policy",
        mask="all tokens of a text but its first, the stop token included",
        reads="Present where ppo.ptx_coef is above 0. At the start the loss that SFT ended with. Rising: the policy "
        "forgets the corpus faster than the mix reminds it; raise γ. Far below the start: it is memorised.",
        rows=("B13", "B11"),
    ),
)
