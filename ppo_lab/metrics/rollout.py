"""What one step sampled, scored and cost: fields of `StepMetrics`."""

from ppo_lab.metrics.metric import Metric, peers

_SEQUENCES = "mean over the sequences of all ranks"
_TOKENS = "valid response tokens"
_ALL = "mean over valid tokens of all ranks"
_RANK0 = "the slowest rank decides; as seen by rank 0"

SCORES = (
    Metric(
        name="step", title="step", group="cost", unit="steps", formula="PPO iterations done, counted from 1",
        reduction="count", mask="none",
        reads="One rollout and one update. Step 0 is the untouched SFT policy.",
        aliases=peers(verl="training/global_step"),
        alias_notes="The others count episodes (TRL), environment steps (CleanRL, Stable-Baselines3) or the same "
        "(verl: training/global_step).",
        rows=("B7",),
    ),
    Metric(
        name="score_mean", title="score", group="reward", unit="reward",
        formula="mean R(x, y), normalised, weighted, clipped, missing-stop rule applied", reduction=_SEQUENCES,
        mask="whole sequences",
        reads="What is maximised, without the KL. Up is the aim, and not proof: with eval_gold or the samples "
        "falling, the policy exploits the reward model; raise β, stop earlier, better reward model. Flat: rate too "
        "low, or score_std 0.",
        aliases=peers(trl="objective/scores", openrlhf="reward", verl="critic/score/mean",
                      cleanrl="charts/episodic_return", sb3="rollout/ep_rew_mean"),
        alias_notes="CleanRL logs single episodes, Stable-Baselines3 the mean of the last 100.",
        rows=("B4", "C3", "D3", "D15"),
    ),
    Metric(
        name="score_std", title="spread of scores", group="reward", unit="reward",
        formula="std over sequences of R(x, y)", reduction="standard deviation over the sequences of all ranks",
        mask="whole sequences",
        reads="Without spread there is nothing to learn from. To 0: all answers score alike (collapse, or a "
        "reward that cannot tell). A sudden jump: the reward's scale changed.",
        aliases=peers(openrlhf="rollout/reward_std"),
        rows=("C3", "D15"),
    ),
    Metric(
        name="reward_mean", title="total reward", group="reward", unit="reward",
        formula="mean_sequences Σ_t r_t = score_mean + non_score_reward", reduction=_SEQUENCES, mask=_TOKENS,
        reads="The objective PPO sees. Should rise. Rising score with falling total: the KL costs more than the "
        "score earns; lower the rate before lowering β.",
        aliases=peers(trl="objective/rlhf_reward", openrlhf="return", verl="critic/rewards/mean"),
        rows=("B4", "D19"),
    ),
    Metric(
        name="non_score_reward", title="−β·KL part", group="reward", unit="reward",
        formula="mean_sequences Σ_t −β (log π − log π_ref)", reduction=_SEQUENCES, mask=_TOKENS,
        reads="What leaving the reference costs, in reward. Of the same size as the score's gain: the leash is "
        "tight. Positive for many steps: the samples are not the policy's own.",
        aliases=peers(trl="objective/non_score_reward"),
        rows=("B4", "C3", "C10"),
    ),
    Metric(
        name="raw_score_mean", title="raw score", group="reward", unit="reward's own",
        formula="mean R(x, y) as the reward gave it", reduction=_SEQUENCES, mask="whole sequences",
        reads="Before normalising, clipping and the missing-stop rule. Moves apart from score_mean: one of those "
        "acts; a clip that binds hides improvement.",
        rows=("C3", "D15"),
    ),
    Metric(
        name="score_disagreement", title="disagreement", group="reward", unit="reward",
        formula="mean over answers of std_m s_m, s_m the normalised score of member m of an ensemble",
        reduction=_SEQUENCES, mask="whole sequences",
        reads="Present where reward.combine is not sum. Rising while the score rises: answers leave what the members "
        "learned from, and the score is a guess; take min or mean_minus_std, raise β.",
        rows=("B11", "D3"),
    ),
    Metric(
        name="gold_mean", title="gold", group="reward", unit="gold",
        formula="mean of the gold reward, which training never sees", reduction=_SEQUENCES, mask="whole sequences",
        reads="Quality. Rises with the score, then falls while the score goes on: over-optimisation. Take the "
        "checkpoint before the turn, raise β.",
        rows=("B11", "D3"),
    ),
)

REFERENCE = (
    Metric(
        name="ref_kl_sum", title="KL to the reference", group="reference", unit="nats per sequence",
        formula="mean_sequences Σ_t (log π − log π_ref), k1", reduction=_SEQUENCES, mask=_TOKENS,
        estimates="KL(π‖π_ref) from samples of π", healthy=(0.0, 10.0), source="our embedded runs end at 3 to 6",
        reads="How far the policy has left the reference. Above 10 the reward model judges text it never saw; "
        "raise β or lower the rate. Negative for many steps: sampling and log-probs disagree. Grows with length by "
        "nature.",
        aliases=peers(trl="objective/kl"),
        alias_notes="TRL's is k1 or k3, as configured. OpenRLHF and verl log the mean per token: see ref_kl_token.",
        rows=("B4", "C10", "D1", "D19"),
    ),
    Metric(
        name="ref_kl_token", title="KL per token", group="reference", unit="nats per token",
        formula="Σ (log π − log π_ref) / tokens", reduction=_ALL, mask=_TOKENS,
        estimates="KL(π‖π_ref) from samples of π", healthy=(0.0, 1.0), source="10 nats on ten tokens",
        reads="The same, apart from length: compare it across response caps. Falling while ref_kl_sum rises: "
        "answers grow.",
        aliases=peers(openrlhf="kl", verl="actor/reward_kl_penalty"),
        alias_notes="OpenRLHF and verl average each sequence first, so short answers weigh more than here.",
        rows=("B4", "B8", "C16", "D19"),
    ),
    Metric(
        name="beta", title="β", group="reference", unit="reward per nat", formula="β used in this step's rewards",
        reduction="one number, the same on every rank", mask="none",
        reads="The price of a nat. An adaptive β should settle; at its bound, the target KL cannot be met.",
        aliases=peers(verl="actor/reward_kl_penalty_coeff"),
        rows=("A7", "B4"),
    ),
    Metric(
        name="sampler_mismatch", title="sampler mismatch", group="ratio", unit="nats",
        formula="max_t |log π_sampler(y_t) − log π(y_t)|, the same weights",
        reduction="maximum over valid tokens of all ranks", mask=_TOKENS, healthy=(0.0, 1e-4),
        source="float32 rounding, a key-value cache against a full forward",
        reads="Sampling (with a cache) and scoring must agree. Above 1e-4 in float32: positions, temperature or "
        "padding differ between the two. In bfloat16 up to 0.3 is rounding; then recompute old_logp.",
        aliases=peers(verl="training/rollout_probs_diff_max"),
        alias_notes="verl compares probabilities, not log-probs. OpenRLHF's vllm_kl is the mean difference.",
        rows=("B3", "C9", "D7", "D12"),
    ),
)

CRITIC = (
    Metric(
        name="explained_variance", title="explained variance", group="value", unit="",
        formula="1 − Var(G − V) / Var(G)", reduction="one ratio of variances over all ranks", mask=_TOKENS,
        healthy=(0.0, 1.0), source="0 is a constant, 1 is perfect",
        reads="1: the critic knows the return. 0: no better than a constant. Below 0: worse than a constant, and "
        "its advantages add noise; warm the critic up, raise its rate. NaN: all returns equal.",
        aliases=peers(verl="critic/vf_explained_var", cleanrl="losses/explained_variance",
                      sb3="train/explained_variance"),
        rows=("A9", "B5", "D4"),
    ),
    Metric(
        name="value_mean", title="mean value", group="value", unit="reward", formula="mean_t V_t at rollout",
        reduction=_ALL, mask=_TOKENS,
        reads="Should follow return_mean. A steady gap: a biased critic, so every advantage has the same sign.",
        aliases=peers(openrlhf="values", verl="critic/values/mean"),
        alias_notes="OpenRLHF's is taken during the update, ours at rollout.",
        rows=("A9",),
    ),
    Metric(
        name="return_mean", title="mean return", group="value", unit="reward",
        formula="mean_t G_t, G = Â + V before standardising", reduction=_ALL, mask=_TOKENS,
        reads="The critic's target. Rises with the reward.",
        aliases=peers(verl="critic/returns/mean"),
        alias_notes="OpenRLHF's return is the summed reward a sequence: our reward_mean.",
        rows=("A9", "B5"),
    ),
    Metric(
        name="advantage_mean", title="mean advantage", group="value", unit="reward",
        formula="mean_t Â_t before standardising", reduction=_ALL, mask=_TOKENS,
        reads="Near 0 against advantage_std when the critic is right. Far off: the critic lags, or padding leaks "
        "in.",
        aliases=peers(verl="critic/advantages/mean"),
        alias_notes="verl logs it after whitening, where it is 0 by construction.",
        rows=("A8", "C1", "D6"),
    ),
    Metric(
        name="advantage_std", title="spread of advantages", group="value", unit="reward",
        formula="std_t Â_t before standardising", reduction="standard deviation over valid tokens of all ranks",
        mask=_TOKENS,
        reads="The noise the policy gradient carries. Growing: lower λ, larger batch, better critic. To 0: no "
        "signal.",
        rows=("A8", "C1", "C6", "D11"),
    ),
)

TEXT = (
    Metric(
        name="response_length", title="response length", group="length", unit="tokens",
        formula="mean tokens up to and with the stop", reduction=_SEQUENCES, mask=_TOKENS,
        reads="A drift is the reward model's taste for length, or the KL's for shortness. Against the cap: "
        "answers are cut; raise the cap or penalise a missing stop.",
        aliases=peers(openrlhf="response_length", verl="response_length/mean", cleanrl="charts/episodic_length",
                      sb3="rollout/ep_len_mean"),
        rows=("B8", "C16", "D8"),
    ),
    Metric(
        name="stop_rate", title="stopped by itself", group="length", unit="share",
        formula="share of answers that end in a stop token", reduction=_SEQUENCES, mask="whole sequences",
        reads="The rest ran into the cap. Falling: the policy forgets to stop; use the missing-stop penalty, "
        "check that the stop token is in the mask.",
        aliases=peers(openrlhf="rollout/truncated_rate", verl="response_length/clip_ratio"),
        alias_notes="Both log the complement: the share that hit the cap. TRL counts stop tokens: "
        "val/num_eos_tokens.",
        rows=("B8", "D8"),
    ),
    Metric(
        name="distinct_1", title="distinct-1", group="entropy", unit="share", formula="different tokens / tokens",
        reduction="over all responses of all ranks together", mask=_TOKENS,
        reads="Vocabulary in use. Depends on the number of samples: compare within a run only.",
        rows=("B11", "C11"),
    ),
    Metric(
        name="distinct_2", title="distinct-2", group="entropy", unit="share",
        formula="different token pairs / pairs", reduction="over all responses of all ranks together",
        mask="pairs of valid response tokens",
        reads="Variety of phrasing. Falling fast with a rising score is mode collapse; raise β. Compare within a "
        "run only.",
        rows=("B11", "C11", "D5"),
    ),
)

COST = (
    Metric(
        name="actor_rate", title="actor rate", group="gradient", unit="",
        formula="learning rate of the policy's last step here", reduction="one number, the same on every rank",
        mask="none",
        reads="Follows its schedule. Still high at the end while KL jumps: anneal.",
        aliases=peers(trl="lr", openrlhf="actor_lr", verl="actor/lr", cleanrl="charts/learning_rate",
                      sb3="train/learning_rate"),
        alias_notes="TRL, CleanRL and Stable-Baselines3 have one rate for both networks.",
        rows=("C5", "D10", "E8"),
    ),
    Metric(
        name="critic_rate", title="critic rate", group="gradient", unit="",
        formula="learning rate of the critic's last step here", reduction="one number, the same on every rank",
        mask="none",
        reads="Usually above the actor's: the critic has to keep up.",
        aliases=peers(openrlhf="critic_lr", verl="critic/lr"),
        rows=("A10", "C5"),
    ),
    Metric(
        name="tokens", title="response tokens", group="cost", unit="tokens", formula="Σ mask",
        reduction="sum over all ranks", mask=_TOKENS,
        reads="What the losses average over. Equals responses × response_length; if not, padding is in the loss.",
        alias_notes="verl's perf/total_num_tokens counts the prompts too.",
        rows=("C4", "D14"),
    ),
    Metric(
        name="seconds_rollout", title="rollout time", group="cost", unit="s", formula="wall time of sampling",
        reduction=_RANK0, mask="none",
        reads="Grows with the longest answer. Usually the largest part with big models: shorter cap, larger batch.",
        aliases=peers(openrlhf="timing/generation", verl="timing_s/gen"),
        rows=("D13", "E10"),
    ),
    Metric(
        name="seconds_score", title="scoring time", group="cost", unit="s",
        formula="wall time of the reward, reference, value and old log-prob passes", reduction=_RANK0, mask="none",
        reads="Largest of the three: the reward is slow; batch it or move it.",
        aliases=peers(openrlhf="timing/make_experience"),
        alias_notes="verl has one timer a model: timing_s/reward, ref, values, old_log_prob.",
        rows=("D13", "E10"),
    ),
    Metric(
        name="seconds_update", title="update time", group="cost", unit="s", formula="wall time of all epochs",
        reduction=_RANK0, mask="none",
        reads="Grows with the epochs. The largest part with small models.",
        aliases=peers(openrlhf="timing/ppo_train", verl="timing_s/update_actor"),
        alias_notes="verl times the critic apart (timing_s/update_critic). CleanRL and Stable-Baselines3 log "
        "steps a second.",
        rows=("D13", "E10"),
    ),
    Metric(
        name="peak_memory_mb", title="peak memory", group="cost", unit="MiB",
        formula="largest resident size of the process so far", reduction="rank 0", mask="none",
        reads="Flat after the first steps. A climb is a leak: something keeps the graph alive.",
        aliases=peers(verl="perf/max_memory_allocated_gb"),
        alias_notes="verl logs GiB of the device's allocator.",
        rows=("B12", "E7"),
    ),
)
