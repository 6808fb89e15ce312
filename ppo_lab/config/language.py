"""Settings of an RLHF run: corpus, four models, rewards, KL, sampling, evaluation."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from .base import Config
from .ppo import CheckpointConfig, LogConfig, OptimizerConfig, PPOConfig
from .reward import RewardConfig, RewardModelConfig, check_ensemble, check_objectives
from .scale import LearnerConfig, LoRAConfig


class CorpusConfig(Config):
    """Where texts and prompts come from; see rlhf.corpus."""

    kind: Literal["grammar", "text", "jsonl", "dataset", "human-reviews", "language"] = Field(
        "grammar",
        description="grammar: the embedded movie reviews; text: one text a line; jsonl; dataset: a Hugging Face "
        "dataset name; human-reviews: fetched rated snippets; language: the enumerable one.",
    )
    path: str | None = Field(None, description="File, or dataset name (with /config after it where it needs one).")
    field: str = Field("text", description="Key of the text in jsonl and dataset rows.")
    prompt_field: str | None = Field(None, description="Key of a ready prompt; None: the first words of the text.")
    split: str = Field("train", description="Split of a Hugging Face dataset.")
    size: PositiveInt = Field(16000, description="Texts drawn from the grammar, or the most that are read.")
    sentences: PositiveInt | tuple[PositiveInt, PositiveInt] = Field(
        1, description="Sentences in one text (grammar), or [fewest, most], all equally likely. Higher: longer answers."
    )
    prompt_words: tuple[PositiveInt, PositiveInt] = Field((2, 4), description="Fewest and most words of a prompt.")
    held_out: PositiveInt = Field(256, description="Prompts kept for evaluation; never trained on.")
    max_prompt_tokens: PositiveInt = Field(16, description="Longest prompt in tokens.")
    overlong: Literal["drop", "truncate", "error"] = Field(
        "error", description="What happens to longer prompts; truncate keeps the end."
    )
    chat: bool = Field(False, description="Put prompts through the tokenizer's chat template.")


class PolicyConfig(Config):
    """The language model that is trained; its untouched copy is the reference."""

    path: str | None = Field(None, description="Local folder, hub name or fetched model; None: build a tiny one.")
    family: Literal["llama", "gpt2"] = Field("llama", description="Architecture of a tiny build.")
    layers: PositiveInt = Field(3, description="Blocks of a tiny build. Higher: more capacity, slower.")
    width: PositiveInt = Field(96, description="Hidden size of a tiny build.")
    heads: PositiveInt = Field(4, description="Attention heads of a tiny build; divides width.")
    context: PositiveInt = Field(64, description="Positions of a tiny build.")
    dropout: float = Field(0.0, ge=0, lt=1, description="Used in SFT and reward training only, never in PPO.")
    trainable_layers: PositiveInt | None = Field(
        None, description="Train only the last so many blocks and the final norm; None: everything."
    )
    lora: LoRAConfig = LoRAConfig()
    ema: float | None = Field(
        None, gt=0, lt=1,
        description="Decay of a moving average of the policy's weights, taken after every PPO step, evaluated beside "
        "the policy (eval_ema_*) and written by export --average; training never sees it. Higher: smoother, later.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _heads_divide(self) -> PolicyConfig:
        if self.path is None and self.width % self.heads:
            raise ValueError(f"policy.heads must divide policy.width {self.width}, got {self.heads}; try 4")
        if self.lora.rank and self.trainable_layers is not None:
            raise ValueError(
                f"policy.trainable_layers must be unset with policy.lora.rank {self.lora.rank} (adapters are what is "
                f"trained), got {self.trainable_layers}; leave out one of the two"
            )
        return self


class SFTConfig(Config):
    """Supervised fine-tuning on the corpus before PPO; steps 0 leaves the model as it is."""

    steps: NonNegativeInt = Field(800, description="Optimizer steps. Higher: lower loss, then memorised texts.")
    batch: PositiveInt = Field(32, description="Texts a step. Higher: smoother steps that cost more each.")
    rate: PositiveFloat = Field(6e-3, description="Peak rate, warm-up then cosine. Higher: faster, then diverges.")
    weight_decay: NonNegativeFloat = Field(0.01, description="Decoupled decay.")


class KLConfig(Config):
    """The leash to the reference (nats). Where it stands, how it is estimated, who sets β."""

    beta: NonNegativeFloat = Field(0.05, description="Weight of the KL. Higher: nearer to the reference.")
    placement: Literal["reward", "loss"] = Field("reward", description="Inside the token reward, or in the loss.")
    estimator: Literal["k1", "k2", "k3", "exact"] = Field(
        "k1", description="k1 in the reward; k2 or exact in the loss. exact: full vocabulary, loss only."
    )
    controller: Literal["fixed", "proportional", "double_or_halve", "step_1_5"] = Field(
        "fixed", description="How β follows the summed k1 per sequence of the last rollout."
    )
    target: PositiveFloat = Field(6.0, description="Nats per sequence that the controller aims at.")
    horizon: PositiveInt = Field(10000, description="Sequences over which proportional acts. Lower: β moves faster.")
    reference_length: PositiveFloat | None = Field(
        None,
        description="L_ref in tokens: an answer of L tokens pays β L_ref / L a nat; None: β. Higher: every nat costs "
        "more. Long answers then leave the reference cheaply.",
    )

    @model_validator(mode="after")
    def _exact_in_loss(self) -> KLConfig:
        if self.estimator == "exact" and self.placement == "reward":
            raise ValueError("kl.estimator exact needs kl.placement loss, got reward; use k1 in the reward")
        if self.reference_length is not None and self.placement == "loss":
            raise ValueError(
                f"kl.reference_length needs kl.placement reward (it is a price a sequence), got loss with "
                f"{self.reference_length:g}; leave it out, or set kl.placement: reward"
            )
        return self


class SamplingConfig(Config):
    """One rollout: prompts × samples answers of at most max_new_tokens tokens."""

    prompts: PositiveInt = Field(128, description="Prompts a step.")
    samples: PositiveInt = Field(1, description="Answers a prompt.")
    max_new_tokens: PositiveInt = Field(16, description="The cap. Higher: longer answers, more KL to spread.")
    temperature: PositiveFloat = Field(1.0, description="Divides the logits of policy, old, reference and entropy.")
    stop: tuple[str, ...] = Field((), description="Tokens that end an answer besides the tokenizer's EOS.")
    suppress: tuple[str, ...] = Field((), description="Tokens never sampled; masked on both sides of every ratio.")
    old_logp: Literal["recompute", "sampler"] = Field(
        "recompute", description="Denominator of the ratio: the update's own forward, or the sampler's figures."
    )
    batch: PositiveInt | None = Field(None, description="Rows sampled and scored at a time; None: all.")
    order: Literal["epochs", "length", "difficulty", "uncertainty"] = Field(
        "epochs", description="Which training prompts come next: all alike, or more often the long, the low-scored, "
        "the ones that ensemble or critic are unsure of (rlhf.prompt_sampling). Held-out prompts never follow it.",
    )  # fmt: skip
    order_strength: float = Field(
        1.0, description="κ of e^(κz), z in deviations. Higher: more of them; below 0: fewer, as of long ones."
    )
    order_floor: float = Field(
        0.2, ge=0, le=1, description="Share of the chance that all prompts get alike. Higher: nearer to all alike."
    )

    @model_validator(mode="before")
    @classmethod
    def _no_filter(cls, data: Any) -> Any:
        for name in ("top_k", "top_p", "min_p"):
            if isinstance(data, dict) and data.get(name) is not None:
                raise ValueError(
                    f"sampling.{name} must be unset in training (log-probs of the full softmax would not be those of "
                    f"the filtered sampler), got {data[name]}; remove it, or lower sampling.temperature"
                )
        return data


class TextPPOConfig(PPOConfig):
    """The update on answers, with the pre-training mix of InstructGPT (PPO-ptx)."""

    ptx_coef: NonNegativeFloat = Field(
        0.0, description="γ: weight of the mean log-likelihood (a token) of texts of the corpus beside the surrogate, "
        "Ouyang et al. 2022, eq. 2. Higher: nearer to the corpus, less reward."
    )
    ptx_batch: PositiveInt = Field(
        32, description="Texts beside each minibatch (ptx_coef). Higher: smoother, and a longer update."
    )


class CriticConfig(Config):
    """Values per token, read at the position before each token."""

    init: Literal["auto", "reward_model", "policy"] = Field(
        "auto", description="auto: from the reward model where it is causal and shares the tokenizer, else the policy."
    )
    trunk: Literal["separate", "shared", "partial"] = Field(
        "separate", description="Own network, a head on the actor's, or its first blocks (shared_layers) and own ones."
    )
    shared_layers: NonNegativeInt | None = Field(
        None, description="M, the policy's first blocks that a partial critic stands on. Higher: less memory and time, "
        "fewer layers to differ in; 0 is separate, all of them shared."
    )
    detach: bool = Field(
        False, description="Stop the value's gradient before the shared trunk: the policy alone shapes it."
    )
    head: Literal["linear", "mlp"] = Field("linear", description="Value head; mlp has one hidden layer.")
    head_std: PositiveFloat = Field(0.01, description="Initial deviation of a fresh head.")
    warmup: NonNegativeInt = Field(0, description="First PPO steps in which only the critic learns.")

    @model_validator(mode="after")
    def _shares(self) -> CriticConfig:
        if (self.trunk == "partial") != (self.shared_layers is not None):
            raise ValueError(
                f"critic.shared_layers must be set with critic.trunk partial and with no other, got "
                f"{self.shared_layers} with {self.trunk}; set both, half of the policy's blocks is a start"
            )
        if self.detach and self.trunk == "separate":
            raise ValueError("critic.detach needs a critic.trunk that is shared or partial, got separate; leave it out")
        if self.init == "reward_model" and self.trunk != "separate":
            raise ValueError(
                f"critic.init reward_model needs critic.trunk separate (the reward model's upper layers do not fit the "
                f"policy's lower ones), got {self.trunk}; leave init out"
            )
        return self


class EvaluationConfig(Config):
    """Held-out prompts, greedy and sampled with the same noise each time."""

    every: PositiveInt = Field(10, description="Steps between evaluations; the last step always has one.")
    prompts: PositiveInt = Field(128, description="Held-out prompts used.")
    gold: str | None = Field(None, description="vader or module:function: logged, never used to choose.")


class RLHFConfig(Config):
    """A whole run: SFT, reward model, PPO."""

    name: str = Field("run", description="Folder below runs/.", min_length=1)
    seed: NonNegativeInt = Field(0, description="Every random number hangs on this.")
    steps: PositiveInt = Field(40, description="PPO iterations.")
    threads: PositiveInt = Field(1, description="CPU threads; tiny models run fastest on one.")
    precision: Literal["no", "bf16", "fp16"] = Field(
        "no",
        description="Mixed precision; master weights stay float32. fp16 scales the loss, from 2^16, and needs "
        "learner.kind zero.",
    )
    compile: bool = Field(
        False, description="Fuse what stands between matrix products (torch.compile): a minute to start, then faster "
        "steps. Pays from millions of weights; needs a C++ compiler, whole trunks and another learner than zero.",
    )  # fmt: skip
    learner: LearnerConfig = LearnerConfig()
    corpus: CorpusConfig = CorpusConfig()
    policy: PolicyConfig = PolicyConfig()
    sft: SFTConfig = SFTConfig()
    reward_model: RewardModelConfig = RewardModelConfig()
    reward: RewardConfig = RewardConfig()
    kl: KLConfig = KLConfig()
    sampling: SamplingConfig = SamplingConfig()
    critic: CriticConfig = CriticConfig()
    ppo: TextPPOConfig = TextPPOConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()

    @property
    def rows(self) -> int:
        """Answers in one rollout, B."""
        return self.sampling.prompts * self.sampling.samples

    @property
    def minibatch_rows(self) -> int:
        """Answers in one optimizer step."""
        return self.rows // self.ppo.minibatches

    @model_validator(mode="after")
    def _ensemble(self) -> RLHFConfig:
        check_ensemble(self.reward_model, self.reward)
        check_objectives(self.reward)
        return self

    @model_validator(mode="after")
    def _sizes(self) -> RLHFConfig:
        if self.rows % self.ppo.minibatches:
            good = [m for m in range(1, self.rows + 1) if self.rows % m == 0]
            near = sorted(sorted(good, key=lambda m: abs(m - self.ppo.minibatches))[:3])
            raise ValueError(
                f"ppo.minibatches must divide the {self.rows} rows of a rollout (prompts {self.sampling.prompts} x "
                f"samples {self.sampling.samples}), got {self.ppo.minibatches}; use {', '.join(map(str, near))}"
            )
        positions = self.corpus.max_prompt_tokens + self.sampling.max_new_tokens
        if self.policy.path is None and positions > self.policy.context:
            raise ValueError(
                f"policy.context must hold corpus.max_prompt_tokens + sampling.max_new_tokens = {positions} positions, "
                f"got {self.policy.context}; raise policy.context or lower the other two"
            )
        if self.evaluation.prompts > self.corpus.held_out:
            raise ValueError(
                f"evaluation.prompts must not exceed corpus.held_out {self.corpus.held_out}, "
                f"got {self.evaluation.prompts}; lower it"
            )
        if self.precision == "fp16" and self.learner.kind != "zero":
            raise ValueError(
                f"precision fp16 needs learner.kind zero (DeepSpeed scales the loss), got {self.learner.kind}; use bf16"
            )
        every = self.learner.recompute_every
        inside = {"learner.kind zero": self.learner.kind == "zero", f"learner.recompute_every {every}": bool(every),
                  "critic.trunk partial": self.critic.trunk == "partial"}  # fmt: skip
        if self.compile and any(inside.values()):
            got = next(name for name, on in inside.items() if on)
            raise ValueError(f"compile needs trunks that nobody looks into, got {got}; leave one of the two out")
        if self.precision != "no" and self.sampling.old_logp == "sampler":
            raise ValueError(
                f"sampling.old_logp must be recompute under precision {self.precision} (the KV cache is off by up to "
                "0.26 nats), got sampler; set sampling.old_logp: recompute"
            )
        return self
