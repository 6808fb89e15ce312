"""Settings of a control run: environments, policy, normalisation, schedules, evaluation. A file with ``env`` is one."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from .base import Config
from .bonus import ExplorationConfig, ShapingConfig
from .ppo import CheckpointConfig, LogConfig, OptimizerConfig, PPOConfig

# Where control differs from language; a file's own settings come on top.
USUAL: dict[str, dict[str, Any]] = {
    "ppo": {"gamma": 0.99, "value_coef": 0.5, "value_clip": None, "standardize": "minibatch"},
    "optimizer": {"actor_rate": 3e-4, "critic_rate": 1e-3, "eps": 1e-5, "max_norm": 0.5},
    "checkpoint": {"every": 25},
    "log": {"samples": 0},
}


class EnvConfig(Config):
    """Which environments, how many side by side, and how they are stepped."""

    id: str = Field(description="A Gymnasium name, as CartPole-v1, or one of ours, as probe/bandit.", min_length=1)
    count: PositiveInt = Field(8, description="Environments side by side. Higher: cheaper steps.")
    options: dict[str, Any] = Field({}, description="Arguments of the environment itself, as {g: 9.8}.")
    vector: Literal["auto", "native", "loop", "gymnasium"] = Field(
        "auto",
        description="native: the environment's own vector form; loop: ours, one after the other; gymnasium: "
        "SyncVectorEnv; auto: native where there is one, else loop. Changes the random start states, nothing else.",
    )
    autoreset: Literal["same_step", "next_step", "disabled"] = Field(
        "same_step", description="When an ended environment starts anew (vector: gymnasium); all three learn the same."
    )
    time_limit: PositiveInt | None = Field(
        None, description="Steps after which an episode is cut; None: its own. Lower: more cuts to bootstrap."
    )


class NetConfig(Config):
    """Actor and critic: perceptrons (Huang et al. 2022, 37 details, nos. 2 and 13)."""

    hidden: tuple[PositiveInt, ...] = Field(
        (64, 64), description="Widths of the hidden layers. More: finer policies, slower.", min_length=1
    )
    activation: Literal["tanh", "relu"] = Field("tanh", description="Between the layers.")
    trunk: Literal["separate", "shared"] = Field(
        "separate", description="Own networks, or two heads on the actor's; then ppo.value_coef weighs in."
    )
    init: Literal["orthogonal", "torch"] = Field(
        "orthogonal", description="orthogonal: gain √2 inside, policy_gain and 1 at the heads; or torch's own."
    )
    policy_gain: PositiveFloat = Field(
        0.01, description="Gain of the policy's last layer (orthogonal). Higher: less uniform at the start."
    )
    target_decay: float | None = Field(
        None, ge=0, lt=1, description="Advantages and targets from a critic that lags: V̄ ← d·V̄ + (1-d)·V after each "
        "update; None: from the critic itself, as 0. Higher: steadier targets, staler.",
    )  # fmt: skip
    log_std: float = Field(0.0, description="Initial log σ of a Gaussian policy, one for all states. Higher: bolder.")


class NormalizeConfig(Config):
    """Running statistics of training; they travel in the checkpoint and stand still in an evaluation."""

    observation: bool = Field(False, description="Observations to mean 0 and deviation 1.")
    observation_clip: PositiveFloat | None = Field(
        None, description="Bound on each number observed; 10 is usual. Lower: less is told apart."
    )
    reward: bool = Field(False, description="Reward ÷ deviation of the discounted return so far.")
    reward_clip: PositiveFloat | None = Field(
        None, description="Bound on a (scaled) reward; 10 is usual. Lower: rare pay counts less."
    )


class PenaltyConfig(Config):
    """Who sets the β of ``objective: kl_penalty``, from KL(old‖new) over the whole batch after its epochs."""

    rule: Literal["fixed", "double_or_halve", "step_1_5", "proportional"] = Field(
        "double_or_halve", description="How β follows the KL; see core.kl.next_beta."
    )
    target: PositiveFloat = Field(0.01, description="Nats a step that the rule aims at. Higher: bigger updates.")
    horizon: PositiveInt = Field(100000, description="Steps over which proportional acts. Lower: β moves faster.")


class TrustRegionConfig(Config):
    """``algorithm: trpo`` (Schulman et al. 2015)."""

    delta: PositiveFloat = Field(0.01, description="Trust region, nats a step. Higher: bigger updates.")
    damping: NonNegativeFloat = Field(0.1, description="On the Fisher matrix's diagonal. Higher: shorter steps.")
    iters: PositiveInt = Field(
        10, description="Conjugate-gradient steps. Higher: nearer to the natural direction, slower."
    )
    backtracks: PositiveInt = Field(
        10, description="Candidates of the line search, each half the last. More: rarely refused."
    )
    adapt: Literal["fixed", "improvement"] = Field(
        "fixed", description="improvement: δ ×2 where the surrogate gained what its slope promised, ÷2 where not."
    )


class ScheduleConfig(Config):
    """What else moves in a run; None stands still. A target is reached, linearly, at the last step."""

    clip: PositiveFloat | None = Field(None, description="Last ε. Lower: a calmer end; 0.1 is usual.")
    entropy_coef: NonNegativeFloat | None = Field(
        None, description="Last c2. Lower: commits at the end; 0.1 → 0.01 is usual."
    )
    lam: float | None = Field(None, ge=0, le=1, description="Last λ. Lower: trusts the critic more and more.")
    clip_kl: PositiveFloat | None = Field(
        None, description="Policy KL (exact, nats a step) that ε is steered to. Higher: a wider ε."
    )
    lam_spread: PositiveFloat | None = Field(
        None, description="Deviation of the advantages above which λ falls, and rises again below. Higher: rarely."
    )

    @model_validator(mode="after")
    def _one_hand(self) -> ScheduleConfig:
        for name, other in (("clip", "clip_kl"), ("lam", "lam_spread")):
            if getattr(self, name) is not None and getattr(self, other) is not None:
                raise ValueError(f"schedule.{name} and schedule.{other} must not both be set, got "
                                 f"{getattr(self, name)} and {getattr(self, other)}; keep one")  # fmt: skip
        return self


class ControlEvaluationConfig(Config):
    """Fresh environments, one episode each; nothing learns in them. The best step is sought among those that have both
    an evaluation and a checkpoint: make ``checkpoint.every`` a multiple of ``evaluation.every``."""

    every: PositiveInt = Field(
        10, description="Updates between evaluations; the last one always has one. Higher: less time, fewer points."
    )
    episodes: PositiveInt = Field(20, description="Episodes. More: a surer mean, more time.")
    sampled: bool = Field(False, description="Also with sampled actions, as in training; costs as much again.")
    most_steps: PositiveInt = Field(
        10000, description="Where an episode that does not end is left. Lower: cheaper, and long episodes look alike."
    )


class ControlConfig(Config):
    """A whole run: environments, policy, update. REINFORCE, A2C, PPO-clip, PPO-KL are settings of one recipe."""

    name: str = Field("control", description="Folder below runs/.", min_length=1)
    seed: NonNegativeInt = Field(0, description="Every random number hangs on this.")
    env: EnvConfig
    algorithm: Literal["ppo", "trpo"] = Field(
        "ppo", description="ppo: every ppo.objective; trpo: a natural step, then the critic by ppo's settings."
    )
    total_steps: PositiveInt = Field(
        100_000, description="Steps of all environments together. Higher: longer, and rates fall later."
    )
    rollout: PositiveInt = Field(128, description="Steps of each environment between updates. Higher: less bias.")
    advantage: Literal["gae", "return"] = Field(
        "gae", description="What weighs an action: GAE, or the plain discounted return (REINFORCE without a baseline)."
    )
    critic_warmup: NonNegativeInt = Field(
        0, description="First updates in which only the critic learns. Higher: surer first steps."
    )
    threads: PositiveInt = Field(1, description="CPU threads; tiny networks run fastest on one.")
    net: NetConfig = NetConfig()
    normalize: NormalizeConfig = NormalizeConfig()
    shaping: ShapingConfig = ShapingConfig()
    exploration: ExplorationConfig = ExplorationConfig()
    ppo: PPOConfig = PPOConfig(**USUAL["ppo"])
    optimizer: OptimizerConfig = OptimizerConfig(**USUAL["optimizer"])
    penalty: PenaltyConfig = PenaltyConfig()
    trust_region: TrustRegionConfig = TrustRegionConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    evaluation: ControlEvaluationConfig = ControlEvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig(**USUAL["checkpoint"])
    log: LogConfig = LogConfig(**USUAL["log"])

    @property
    def rows(self) -> int:
        """Environment steps in one rollout."""
        return self.env.count * self.rollout

    @property
    def steps(self) -> int:
        """Updates of the run."""
        return self.total_steps // self.rows

    @property
    def penalized(self) -> bool:
        """Whether the loss has KL(old‖new) in it."""
        return self.algorithm == "ppo" and self.ppo.objective == "kl_penalty"

    @model_validator(mode="before")
    @classmethod
    def _usual(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        given = {k: data.get(k) or {} for k in USUAL if isinstance(data.get(k) or {}, dict)}
        return {**data, **{k: {**USUAL[k], **own} for k, own in given.items()}}

    @model_validator(mode="after")
    def _sizes(self) -> ControlConfig:
        rows = self.rows
        if self.total_steps < rows:
            raise ValueError(
                f"total_steps must hold at least one rollout of {rows} steps (env.count {self.env.count} x rollout "
                f"{self.rollout}), got {self.total_steps}; raise it, or lower the other two"
            )
        if self.ppo.minibatches > rows:
            raise ValueError(
                f"ppo.minibatches must not exceed the {rows} steps of a rollout, got {self.ppo.minibatches}; lower it"
            )
        if self.ppo.reduction != "token_mean":
            raise ValueError(
                f"ppo.reduction must be token_mean in control, where a row is one step, got {self.ppo.reduction}; "
                "leave it out"
            )
        for mover in ("clip", "clip_kl"):
            if getattr(self.schedule, mover) is not None and isinstance(self.ppo.clip, tuple):
                raise ValueError(
                    f"ppo.clip must be one number where schedule.{mover} moves it, got {self.ppo.clip}; try 0.2"
                )
        return self
