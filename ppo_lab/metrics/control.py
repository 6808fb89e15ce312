"""What one update of a control run saw and did: fields of `ControlMetrics` and `ControlEvaluation`.

What language and control share (losses, ratios, values, rates, times) has one entry; where it says tokens, read steps.
"""

from ppo_lab.metrics.metric import Metric, peers

_EPISODES = "mean over the episodes that ended in this rollout"
_FRESH = "mean over fresh environments, one episode each"
_WHOLE = "whole episodes, raw reward"
_ONE = "one number"

CONTROL = (
    Metric(
        name="episode_return", title="return", group="reward", unit="reward",
        formula="mean Σ_t r_t, undiscounted, before any scaling", reduction=_EPISODES, mask=_WHOLE,
        reads="What is maximised, with the noise of sampled actions. Absent where no episode ended. It lags behind the "
        "policy where episodes outlast a rollout. Flat from the start: no reward is ever seen, or rate too low.",
        aliases=peers(cleanrl="charts/episodic_return", sb3="rollout/ep_rew_mean"),
        alias_notes="CleanRL logs single episodes, Stable-Baselines3 the mean of the last 100.",
        rows=("A11", "A12"),
    ),
    Metric(
        name="episode_length", title="episode length", group="length", unit="steps", formula="mean steps of an episode",
        reduction=_EPISODES, mask="steps that count",
        reads="On CartPole it is the return. Falling with a rising return: the policy gets there sooner.",
        aliases=peers(cleanrl="charts/episodic_length", sb3="rollout/ep_len_mean"),
        rows=("A8",),
    ),
    Metric(
        name="truncated_share", title="cut by the limit", group="length", unit="share",
        formula="episodes truncated / episodes ended", reduction=_EPISODES, mask=_WHOLE,
        reads="These must bootstrap from their final observation. Near 1 on CartPole is success, near 1 on a task that "
        "ends when solved is failure.",
        rows=("A8",),
    ),
    Metric(
        name="episodes", title="episodes", group="length", unit="episodes", formula="episodes ended in this rollout",
        reduction="count", mask=_WHOLE,
        reads="How many the figures beside it rest on. 0: they are absent.",
        rows=("A11",),
    ),
    Metric(
        name="env_steps", title="environment steps", group="cost", unit="steps",
        formula="updates × environments × rollout", reduction="count since the start", mask="none",
        reads="The usual horizontal axis of control.",
        alias_notes="CleanRL and Stable-Baselines3 use it as the step of every curve.",
        rows=("A12",),
    ),
    Metric(
        name="eval_return", title="return, greedy", group="evaluation", unit="reward",
        formula="mean Σ_t r_t, a = argmax π", reduction=_FRESH, mask=_WHOLE,
        reads="The likeliest action, statistics standing still. The best checkpoint has the highest. Far below the "
        "sampled return: the policy needs its noise; train on.",
        aliases=peers(sb3="eval/mean_reward"),
        rows=("A11", "A12"),
    ),
    Metric(
        name="eval_return_worst", title="worst episode, greedy", group="evaluation", unit="reward",
        formula="min Σ_t r_t, a = argmax π", reduction="minimum over fresh environments", mask=_WHOLE,
        reads="Far below the mean: some start states are not mastered.",
        rows=("A12",),
    ),
    Metric(
        name="eval_return_sampled", title="return, sampled", group="evaluation", unit="reward",
        formula="mean Σ_t r_t, a ~ π", reduction=_FRESH, mask=_WHOLE,
        reads="As in training. Far below the greedy one: the policy is still noisy; let the entropy bonus fall.",
        rows=("A12",),
    ),
    Metric(
        name="eval_episode_length", title="length, greedy", group="length", unit="steps",
        formula="mean steps of an episode, a = argmax π", reduction=_FRESH, mask="steps that count",
        reads="As episode_length.",
        aliases=peers(sb3="eval/mean_ep_length"),
        rows=("A12",),
    ),
    Metric(
        name="policy_kl_exact", title="policy KL, exact", group="step", unit="nats per step",
        formula="mean_s KL(π_old(·|s)‖π(·|s)), after the last epoch", reduction="mean over the steps of the rollout",
        mask="steps that count", estimates="KL(π_old‖π), exact in each state, over states from samples of π_old",
        healthy=(0.0, 0.05), source="our control runs",
        reads="How far the whole update went: policy_kl_k3 is the mean along the way. It sets the penalty's next β. "
        "Above the band: fewer epochs, lower rate.",
        rows=("A4", "A7"),
    ),
    Metric(
        name="clip", title="ε", group="clip", unit="", formula="half width of the ratio band, the upper side",
        reduction=_ONE, mask="none",
        reads="Constant unless a schedule moves it. Steered by the KL it should settle.",
        aliases=peers(sb3="train/clip_range"),
        rows=("A6", "A15"),
    ),
    Metric(
        name="lam", title="λ", group="value", unit="", formula="λ of GAE", reduction=_ONE, mask="none",
        reads="Constant unless a schedule moves it.",
        rows=("A8", "A15"),
    ),
    Metric(
        name="entropy_coef", title="entropy weight", group="entropy", unit="", formula="c2", reduction=_ONE,
        mask="none",
        reads="Constant unless a schedule moves it. Entropy that stays up although it falls: something else holds it.",
        rows=("A10", "A15"),
    ),
    Metric(
        name="penalty_beta", title="penalty β", group="step", unit="", formula="β of r·A − β·kl, used in this update",
        reduction=_ONE, mask="none",
        reads="Settles where the KL meets its target. Falling without end: the KL is measured before the epochs.",
        rows=("A7",),
    ),
    Metric(
        name="delta", title="trust region", group="step", unit="nats", formula="δ of TRPO, used in this update",
        reduction=_ONE, mask="none",
        reads="policy_kl_exact stays below it in every update.",
        rows=("A4", "A15"),
    ),
    Metric(
        name="backtracks", title="halvings", group="step", unit="",
        formula="j of the step accepted, 0.5^j of the full one", reduction=_ONE, mask="none",
        reads="0 or 1 is usual. Absent: no candidate was accepted, and the policy stayed. Often absent: more damping, "
        "larger batch.",
        rows=("A4",),
    ),
    Metric(
        name="reward_scale", title="reward scale", group="reward", unit="reward",
        formula="deviation of the discounted return so far", reduction="running, over all steps",
        mask="steps that count",
        reads="What rewards are divided by. Should settle early; a late jump shakes the critic.",
        rows=("A15", "C3"),
    ),
    Metric(
        name="bonus_mean", title="bonus", group="reward", unit="reward",
        formula="what shaping and exploration paid, a step", reduction="mean", mask="steps that count",
        reads="Exploration: should fall towards 0 as places become familiar. Large beside the reward: the policy works "
        "for the bonus.",
        rows=("H1", "H5"),
    ),
    Metric(
        name="action_std", title="spread of actions", group="entropy", unit="",
        formula="mean_i σ_i of the Gaussian policy", reduction="mean over the numbers of an action", mask="none",
        reads="Falls as the policy commits. Below a tenth of the action range while the return is low: too early.",
        aliases=peers(sb3="train/std"),
        rows=("A14",),
    ),
)
