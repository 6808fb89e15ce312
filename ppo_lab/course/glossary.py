"""The symbols of the course as data; `ppo_lab.course.terms` shows them, and the glossary is made from them.

Shapes: ``B`` rows, ``T`` steps (tokens of a response), ``V`` vocabulary. ``code`` names what computes or holds it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Symbol:
    """One entry of the glossary."""

    key: str  # as it is written in formulas
    name: str
    chinese: str
    meaning: str
    shape: str  # "" for a single number
    unit: str  # "" for a pure number
    code: str  # importable path below ppo_lab, or record.field


CONTROL = (
    Symbol("s", "state", "状态",
           "what the policy sees before it acts; in language the prompt and the tokens so far", "(B, T, …)",
           "", "records.ControlRollout.obs"),
    Symbol("a", "action", "动作", "what the policy chose; in language the next token", "(B, T)", "",
           "records.ControlRollout.action"),
    Symbol("r_t", "reward", "奖励",
           "what step t earned at once; many papers write r for the ratio as well, we do not", "(B, T)",
           "reward", "records.ControlRollout.reward"),
    Symbol("γ", "discount", "折扣因子", "what a reward one step later is worth now; 1 in language", "", "",
           "config.PPOConfig.gamma"),
    Symbol("G", "return", "回报", "discounted sum of the rewards from step t to the end of the episode",
           "(B, T)", "reward", "core.returns.discounted_returns"),
    Symbol("V", "state value", "状态价值", "expected return from a state; the critic estimates it", "(B, T)",
           "reward", "records.StepBatch.old_value"),
    Symbol("Q", "action value", "动作价值", "expected return after an action in a state", "", "reward",
           "exact.mdp.solve"),
    Symbol("A", "advantage", "优势", "how much better the action was than the policy's average, Q − V",
           "(B, T)", "reward", "records.StepBatch.advantage"),
    Symbol("δ", "TD error", "时序差分误差", "one-step surprise, r_t + γ V(s_{t+1}) − V(s_t)", "(B, T)",
           "reward", "core.returns.td_errors"),
    Symbol("λ", "GAE parameter", "GAE 参数",
           "how far the advantage looks ahead: 0 trusts the critic, 1 the rewards", "", "",
           "config.PPOConfig.lam"),
    Symbol("Â", "advantage estimate", "优势估计", "generalised advantage estimate, Σ (γλ)^l δ_{t+l}",
           "(B, T)", "reward", "core.returns.gae"),
    Symbol("terminated", "terminated", "终止", "no future after this step: do not bootstrap", "(B, T) bool", "",
           "records.ControlRollout.terminated"),
    Symbol("ended", "ended", "结束",
           "the next column is another episode: do not look across; includes terminated", "(B, T) bool", "",
           "records.ControlRollout.ended"),
    Symbol("b", "baseline", "基线",
           "what is taken off the return to cut variance; may not depend on the action", "", "reward",
           "exact.mdp.gradient_moments"),
    Symbol("J", "objective", "目标函数", "expected return of the policy: what all of this maximises", "",
           "reward", "exact.mdp.solve"),
    Symbol("EV", "explained variance", "解释方差", "share of the returns' variance that the critic explains",
           "", "", "core.values.explained_variance"),
    Symbol("c1", "value coefficient", "价值损失系数", "weight of the critic's loss beside the policy's", "", "",
           "config.PPOConfig.value_coef"),
    Symbol("c2", "entropy coefficient", "熵系数", "weight of the entropy bonus", "", "",
           "config.PPOConfig.entropy_coef"),
    Symbol("α", "learning rate", "学习率", "size of a step before Adam rescales it", "", "",
           "config.OptimizerConfig.actor_rate"),
)  # fmt: skip

PROBABILITY = (
    Symbol("π", "policy", "策略", "probability of each action in each state", "(B, T)", "",
           "records.Assessment.logp"),
    Symbol("θ", "parameters", "参数", "weights of the policy", "", "", "learners.Learner"),
    Symbol("π_old", "old policy", "旧策略", "the policy that sampled this rollout; constant during the update",
           "(B, T)", "", "records.StepBatch.old_logp"),
    Symbol("log π", "log-probability", "对数概率", "of the action that was taken", "(B, T)", "nats",
           "core.distributions.categorical_logp"),
    Symbol("r", "probability ratio", "概率比",
           "π(a|s) / π_old(a|s), from the difference of log-probabilities", "(B, T)", "",
           "core.importance.importance_weights"),
    Symbol("ε", "clip range", "截断范围", "half width of the band around ratio 1 beyond which nothing pays",
           "", "", "config.PPOConfig.clip"),
    Symbol("L^CLIP", "clipped surrogate", "截断代理目标",
           "min(r A, clip(r, 1 − ε, 1 + ε) A), to be maximised", "(B, T)", "reward",
           "core.objectives.clipped_surrogate"),
    Symbol("ESS", "effective sample size", "有效样本量", "how many fresh samples the weighted ones are worth",
           "", "samples", "core.importance.effective_sample_size"),
    Symbol("H", "entropy", "熵", "how undecided the policy is, −Σ π log π; at most ln V", "(B, T)", "nats",
           "core.distributions.entropy"),
    Symbol("KL", "Kullback–Leibler divergence", "KL 散度",
           "how far one distribution is from another; the order matters", "", "nats", "core.kl.categorical_kl"),
    Symbol("k1", "first KL estimator", "KL 估计量 k1", "log π − log π_ref: unbiased, either sign", "(B, T)",
           "nats", "core.kl.k1"),
    Symbol("k2", "second KL estimator", "KL 估计量 k2",
           "½ (log π − log π_ref)²: biased, right gradient in a loss", "(B, T)", "nats", "core.kl.k2"),
    Symbol("k3", "third KL estimator", "KL 估计量 k3", "e^{−D} − 1 + D with D the k1: unbiased, never negative",
           "(B, T)", "nats", "core.kl.k3"),
    Symbol("δ_KL", "trust region size", "信赖域大小", "most KL that one TRPO step may use", "", "nats",
           "core.trust_region.accept_step"),
    Symbol("F", "Fisher matrix", "费舍尔信息矩阵",
           "curvature of the KL in the parameters; only its products are needed", "", "",
           "core.trust_region.categorical_fisher_product"),
)  # fmt: skip

LANGUAGE = (
    Symbol("x", "prompt", "提示", "the tokens the answer starts from", "(B, P)", "tokens",
           "records.Prompts.tokens"),
    Symbol("y", "response", "回答", "the tokens the policy wrote, stop token included", "(B, T)", "tokens",
           "records.Responses.response"),
    Symbol("m", "mask", "掩码", "True on the tokens that count, built from lengths and never from the pad id",
           "(B, T) bool", "", "records.Responses.mask"),
    Symbol("T", "horizon", "回答长度上限", "most tokens of a response", "", "tokens",
           "config.language.SamplingConfig.max_new_tokens"),
    Symbol("|V|", "vocabulary size", "词表大小", "number of different tokens", "", "tokens", ""),
    Symbol("τ", "temperature", "温度", "divides the logits; above 1 flatter, below 1 sharper", "", "",
           "rlhf.logprobs.token_logprobs"),
    Symbol("π_ref", "reference policy", "参考策略",
           "frozen copy of the SFT model that the policy is kept near", "(B, T)", "",
           "records.TextRollout.ref_logp"),
    Symbol("R", "score", "得分", "what the reward model thinks of a whole answer", "(B,)", "reward",
           "records.TextRollout.score"),
    Symbol("RM", "reward model", "奖励模型", "frozen model that scores answers as people would", "(B,)",
           "reward", "rlhf.rewards.final_score"),
    Symbol("SFT", "supervised fine-tuning", "监督微调", "imitation of good answers; where the policy starts",
           "", "", "rlhf"),
    Symbol("β", "KL coefficient", "KL 系数", "price of a nat of KL, in units of the score", "",
           "reward per nat", "core.kl.next_beta"),
    Symbol("L_ref", "reference length", "参考长度", "tokens of a usual answer; β L_ref / L prices a nat by length", "",
           "tokens", "rlhf.rewards.kl_price"),
    Symbol("KL_target", "KL target", "目标 KL", "the summed KL a sequence that the controller of β holds", "",
           "nats", "core.kl.next_beta"),
    Symbol("σ", "logistic function", "逻辑函数",
           "1 / (1 + e^{−x}); turns a score difference into a probability", "", "",
           "core.preferences.bradley_terry_loss"),
    Symbol("y_w", "chosen response", "更优回答", "the answer that was preferred", "(B, T)", "tokens",
           "core.preferences.bradley_terry_loss"),
    Symbol("y_l", "rejected response", "较差回答", "the answer that was not", "(B, T)", "tokens",
           "core.preferences.bradley_terry_loss"),
    Symbol("κ", "Cohen's kappa", "科恩 κ 系数", "agreement of two raters beyond chance", "", "",
           "rlhf.reward_model.labels.cohens_kappa"),
    Symbol("gold", "gold reward", "真实奖励", "what was meant: a judge that training never asks", "(B,)", "reward",
           "rlhf.gold.vader"),
    Symbol("BoN", "best-of-n", "n 选一", "n answers are drawn and the one with the highest score is kept", "", "",
           "evaluate.best_of_n.best_of_n"),
    Symbol("π*", "optimal policy", "最优策略",
           "π_ref exp(R/β), normalised: what RLHF would reach in the limit", "", "",
           "exact.optimum.optimal_logp"),
)  # fmt: skip

SCALE = (
    Symbol("Ψ", "number of weights", "参数量", "numbers of a model; in half precision 2 bytes each", "",
           "", "scale.memory.shape.Shape.parameters"),
    Symbol("K", "optimizer bytes", "优化器字节数", "bytes that Adam keeps a weight: 12 with a float32 copy, else 8", "",
           "bytes", "scale.memory.zero.zero_bytes"),
    Symbol("D", "data-parallel ranks", "数据并行度", "ranks that hold different rows; ZeRO divides over them", "", "",
           "scale.memory.setup.Setup.data"),
    Symbol("T_p", "tensor-parallel ranks", "张量并行度", "ranks that share each matrix of a block", "", "",
           "scale.memory.setup.Setup"),
    Symbol("P", "pipeline stages", "流水线级数", "ranks that hold different blocks, one after the other", "", "",
           "scale.memory.setup.bubble"),
    Symbol("M", "micro-batches", "微批次数", "forwards of one optimizer step on a rank", "", "",
           "scale.memory.setup.Setup.accumulation"),
)  # fmt: skip
