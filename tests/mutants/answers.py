"""Planted bugs in distributions, pairs, groups, trust regions, schedules, checks, rewards and evaluation."""

# module -> function -> (right, wrong) in its source
SOURCE: dict[str, dict[str, list[tuple[str, str]]]] = {
    "core.distributions": {
        "categorical_logp": [
            ("log_softmax(-1)", "log_softmax(0)"), (".log_softmax(-1)", ""), (".log_softmax(-1)", ".softmax(-1)"),
        ],
        "entropy": [
            ("-(logp", "(logp"), (".sum(-1)", ".mean(-1)"), ("select(logp, logp > -math.inf)", "logp"),
            ("logp.exp() * ", ""),
        ],
        "gaussian_logp": [
            ("-upcast(log_std)", "upcast(log_std)"), ("+ upcast(log_std)", "- upcast(log_std)"),
            ("z.square() / 2", "z.square()"), ("2 * math.pi", "math.pi"), (".sum(-1)", ".mean(-1)"),
        ],
        "gaussian_entropy": [
            ("* math.e", ""), (".sum(-1)", ".mean(-1)"), ("upcast(log_std) +", "upcast(log_std).exp() +"),
            (") / 2", ")"),
        ],
    },
    "core.kl": {
        "categorical_kl": [
            ("logp, p > 0) - select(logq", "logq, p > 0) - select(logp"), ("p = logp.exp()", "p = logq.exp()"),
            ("select(logq, p > 0)", "logq"), ("return _not_negative(", "return ("), (".sum(-1)", ".mean(-1)"),
            ("select(logp, p > 0)", "logp"),
        ],
        "gaussian_kl": [
            ("-log_std_q)", "-log_std_p)"), ("2 * (log_std_p - log_std_q)", "2 * (log_std_q - log_std_p)"),
            ("- widths", "+ widths"), ("z.square()) / 2", "z.square())"), ("2 * (log_std_p", "1 * (log_std_p"),
        ],
        "k1": [("- upcast", "+ upcast"), ("upcast(logp) - upcast(ref_logp)", "upcast(ref_logp) - upcast(logp)")],
        "k2": [("/ 2", ""), (".square()", "")],
        "k3": [
            ("-d) + d", "d) - d"), ("+ d", "- d"), ("torch.expm1(-d)", "(torch.exp(-d) - 1)"),
            ("torch.expm1(-d)", "torch.expm1(-d.clamp(-20, 20))"),
        ],
        "next_beta": [
            ("kl > 1.5 * target", "kl >= 1.5 * target"), ("kl < target / 1.5", "kl <= target / 1.5"),
            ("2 if kl > 1.5", "0.5 if kl > 1.5"), ("kl > 2 * target", "kl >= 2 * target"),
            ("kl < target / 2", "kl <= target / 2"), ("1.5 if kl > 2", "2 if kl > 2"),
            ("kl < target / 2", "kl < target / 1.5"), ("kl / target - 1", "1 - kl / target"),
            ("-0.2), 0.2)", "-0.2), 0.3)"), ("-0.2), 0.2)", "-0.1), 0.2)"), ("* n_steps / horizon", "/ horizon"),
            ("min(max(beta * factor, bounds[0]), bounds[1])", "beta * factor"),
            ("max(beta * factor, bounds[0])", "beta * factor"), ("beta * factor", "factor"),
        ],
        "next_clip": [
            ("target - kl", "kl - target"), ("rate * (target", "(target"), ("clip * math.exp", "math.exp"),
            (", bounds[0])", ", 0.0)"), (", bounds[1])", ", 9.0)"), ("not rate > 0", "not rate >= 0"),
            (", 700.0)", ", 800.0)"),
        ],
        "_not_negative": [("x - x.detach()", "0 * x"), ("x - x.detach()", "x"), ("x < 0", "x > 0")],
    },
    "core.preferences": {
        "bradley_terry_loss": [
            ("- upcast(rejected)", "+ upcast(rejected)"), ("- margin", "+ margin"),
            ("logsigmoid(-x)", "logsigmoid(x)"), ("-(1 - label_smoothing)", "-(1 + label_smoothing)"),
            ("logsigmoid(x) -", "logsigmoid(x) +"), ("* logsigmoid(x)", "* x.sigmoid().log()"),
            ("label_smoothing: float = 0.0", "label_smoothing: float = 0.1"),
        ],
        "score_centering": [("+ upcast", "- upcast"), (".square()", ".abs()")],
        "implicit_reward": [("- upcast", "+ upcast"), ("beta * ", "")],
        "dpo_loss": [
            ("rejected_logp, ref_rejected_logp, beta", "rejected_logp, ref_chosen_logp, beta"),
            ("(chosen, rejected,", "(rejected, chosen,"), ("label_smoothing=label_smoothing", "label_smoothing=0.0"),
        ],
        "ipo_loss": [
            ("2 * beta", "beta"), ("- 1 /", "+ 1 /"), ("chosen - rejected", "rejected - chosen"),
            (".square()", ".abs()"),
        ],
    },
    "core.groups": {
        "rloo_advantages": [
            ("- 1\n", "\n"), ("mask, dim=-1, keepdim=True) - score)", "mask, dim=-1, keepdim=True))"),
            ("others > 0, score - baseline", "others > 0, score + baseline"), ("others > 0", "others >= 0"),
            ("return select(torch", "return (lambda x, m: x)(torch"),
            ("(masked_sum(score, mask, dim=-1", "(masked_sum(score, mask, dim=0"),
        ],
        "centered_advantages": [("dim=-1", "dim=0"), ("dim=-1", "dim=None"), ("mask, dim", "None, dim")],
        "grpo_advantages": [
            ("std + eps", "std"), ("(var > 0, var, 1).sqrt()", "(var > 0, var + eps, 1).sqrt()"),
            ("ddof: int = 1", "ddof: int = 0"), ("ddof=ddof", "ddof=0"),
            ("masked_var(score, mask, dim=-1", "masked_var(score, None, dim=-1"), (".sqrt()", ""),
            ("centered(score, mask, dim=-1)", "centered(score, mask)"),
        ],
        "reinforce_pp_advantages": [
            ("gamma=gamma", "gamma=1.0"), ("ddof=ddof", "ddof=0"), ("eps=eps", "eps=1.0"),
            ("standardize(to_go, mask, eps=eps, ddof=ddof)", "to_go"),
            ("standardize(to_go, mask,", "standardize(to_go, None,"), ("gamma=gamma, mask=mask", "gamma=gamma"),
        ],
    },
    "core.trust_region": {
        "conjugate_gradient": [
            ("residual - step * image", "residual + step * image"), ("size / before", "before / size"),
            ("x + step * direction", "x - step * direction"), ("curvature > 0", "True"), ("size > smallest and", ""),
            ("range(iters)", "range(iters + 1)"), ("range(iters)", "range(iters - 1)"),
            ("step = size / curvature", "step = 0.5 * size / curvature"),
            ("residual + size / before * direction", "residual"),
        ],
        "categorical_fisher_product": [
            ("v - (p * v)", "v + (p * v)"), ("- (p * v).sum(-1, keepdim=True)", ""), (".mean(0)", ".sum(0)"),
            ("+ damping", "- damping"), ("+ damping * v", ""),
        ],
        "natural_step": [
            ("2 * delta", "delta"), (".sqrt()", ""), ("+ damping * v", ""), ("scale * x", "-scale * x"),
            ("slope = x @ g", "slope = g @ g"), ("iters=iters", "iters=10"),
        ],
        "accept_step": [
            ("kl <= delta", "kl < delta"), ("improvement > 0", "improvement >= 0"), ("math.isfinite(kl) and", ""),
            ("kl <= delta and", ""), ("return j", "return j + 1"),
        ],
        "next_delta": [
            ("gained / promised", "promised / gained"), ("promised > 0 else 0.5", "promised > 0 else 1.0"),
            ("kept > 0.75", "kept >= 0.75"), ("kept < 0.25", "kept <= 0.25"), ("2.0 if kept", "0.5 if kept"),
            ("0.5 if kept <", "1.0 if kept <"), (", bounds[0])", ", 0.0)"),
            (", bounds[1])", ", 1.0)"), ("delta * factor", "factor"),
        ],
    },
    "core.averages": {
        "ensemble_score": [
            ('rule == "min"', 'rule != "min"'), ("scores.amin(0)", "scores.amax(0)"), ("amin(0)", "amin(-1)"),
            ("mean - k *", "mean + k *"), ("- k * ensemble_spread(scores)", "- ensemble_spread(scores)"),
            ('rule == "mean" ', 'rule != "mean" '), ("scores.mean(0)", "scores.sum(0)"),
            ("k: float = 1.0", "k: float = 0.0"), ("upcast(scores)", "scores"),
        ],
        "ensemble_spread": [
            ("torch.sqrt(", "("), (".square().mean(0)", ".square().sum(0)"), ("scores - scores.mean(0)", "scores"),
            ("scores.mean(0)).square", "scores.mean(-1, keepdim=True)).square"),
        ],
        "moving_average": [
            ("decay * average", "average"), ("(1 - decay) * x", "x"), ("(1 - decay)", "(1 + decay)"),
            ("decay * average + (1 - decay) * x", "(1 - decay) * average + decay * x"),
        ],
    },
    "core.schedules": {
        "linear_anneal": [
            ("1 - step", "1 + step"), ("max(1 - step / total, 0.0)", "1 - step / total"),
            ("step / total", "step / (total + 1)"),
        ],
        "warmup_cosine": [
            ("step < warmup", "step <= warmup"), ("(1 - start) * step", "step"), ("step / warmup", "step / total"),
            ("(total - warmup)", "total"), ("step - warmup", "step"), (", 1.0) if", ", 2.0) if"),
            ("1 + math.cos", "1 - math.cos"), ("floor + (1 - floor)", "(1 - floor)"), ("(1 - floor)", "1"),
            ("else 1.0", "else 0.0"),
        ],
        "periodic_restart": [
            ("decay**cycle", "decay"), ("decay**cycle * ", ""), ("1 + math.cos", "1 - math.cos"),
            ("math.pi * into", "2 * math.pi * into"), ("decay: float = 0.5", "decay: float = 1.0"),
        ],
    },
    "core._checks": {
        "check_bool": [("!= torch.bool", "== torch.float64")],
        "check_shapes": [("other != shape", "len(other) != len(shape)")],
        "check_spreads": [("y.ndim == x.ndim and", ""), ("b in (a, 1)", "True"), ("y.ndim == 0 or", "")],
        "check_mask": [("check_bool(mask=mask)", "pass"), ("mask.shape != x.shape", "False")],
        "check_choice": [("not in", "in")],
        "check_range": [
            ("low <= value <= high", "low <= value"), ("low <= value <= high", "value <= high"),
            ("not low <= value <= high", "value < low or value > high"), ("low <= value", "low < value"),
        ],
    },
    "rlhf.rewards": {
        "final_score": [
            ("stopped, score, score - penalty", "stopped, score - penalty, score"),
            ("score - penalty", "score + penalty"), ("score, -penalty", "score, penalty"),
            ("(-clip, clip)", "(0, clip)"), ("score.clamp(low, high)", "score.clamp(max=high)"),
            ("score.clamp(low, high)", "score"), ("stopped, score, -penalty", "~stopped, score, -penalty"),
        ],
        "length_normalized": [
            (", length > 0) /", ", length >= 0) /"), ("min=1", "min=2"), ("/ length.clamp(min=1)", "* length"),
        ],
        "kl_price": [
            ("beta * reference", "reference"), ("/ length.clamp(min=1)", ""), ("min=1", "min=3"),
            ("beta * reference_length / length.clamp(min=1)", "beta * length / reference_length"),
            ("/ length.clamp(min=1)", "* length"),
        ],
        "token_rewards": [
            ("beta[..., None] if", "beta.mean() if"),
            ("last_step(mask)", "mask"), ("last_step(mask)) - penalty", "last_step(mask)) + penalty"),
            ("price * estimate", "estimate"), ("select(ref_logp, mask))\n", "ref_logp)\n"),
            ("select(logp, mask), select(ref_logp, mask)", "select(ref_logp, mask), select(logp, mask)"),
            ("[estimator]", "[\"k1\"]"), ("dim=-1", "dim=0"), ("last_step(mask)", "last_step(torch.ones_like(mask))"),
            (".clamp(min=1) - penalty", ".clamp(min=1) + penalty"), ("select(score, mask) /", "score /"),
        ],
    },
    "exact.mdp.moments": {
        "gradient_moments": [
            ("- p  #", "+ p  #"), ("(reward - baseline)", "(reward + baseline)"), ("(reward - baseline)", "reward"),
            ("(estimate - mean)", "estimate"), ("(p * size) @ reward", "size @ reward"),
            ("torch.where(certain, value,", "torch.where(certain, 0,"),
            ("value, certain = p @ reward", "value, certain = reward.mean()"),
        ],
    },
    "exact.mdp.solve": {
        "solve": [
            ("- mdp.gamma * step", "- step"), ("system.T, mdp.start", "system, mdp.start"), ("q - value", "value - q"),
            ("mdp.reward + mdp.gamma * mdp", "mdp.reward + mdp"), ("mdp.start @ value", "value.mean()"),
            ("(probs * mdp.reward)", "mdp.reward"),
        ],
        "best_policy": [("q.argmax(-1)", "q.argmin(-1)"), ("kept & decided", "kept | decided")],
        "limited_values": [
            ("mdp.gamma * step", "step"), ("reward + mdp", "mdp"), ("range(steps)", "range(steps + 1)"),
            ("torch.zeros(mdp.states", "torch.ones(mdp.states"),
        ],
        "check_policy": [("not off <= ROUNDING", "False"), ("probs.shape != mdp.reward.shape or", "")],
    },
    "exact.mdp.gradient": {
        "policy_gradient": [
            ("found.visits[:, None] * ", ""), (" * probs", ""), ("found.advantage", "found.q"),
        ],
        "fisher": [
            ("- probs[:, :, None]", "+ probs[:, :, None]"), ("_share(mdp, probs)[:, None, None] *", "1.0 *"),
            ("torch.diag_embed(probs) -", "torch.diag_embed(probs.sqrt()) -"),
        ],
        "mean_kl": [
            ("_share(mdp, old_probs)", "_share(mdp, new_probs)"), ("_kl(mdp, old_probs, new_probs)",
                                                                  "_kl(mdp, new_probs, old_probs)"),
        ],
        "max_kl": [(".max()", ".mean()"), ("_kl(mdp, old_probs, new_probs)", "_kl(mdp, new_probs, old_probs)")],
    },
    "exact.mdp.improvement": {
        "performance_difference": [
            ("solve(mdp, new_probs).visits", "solve(mdp, old_probs).visits"), (".advantage", ".q"),
            ("(new_probs *", "(old_probs *"),
        ],
        "surrogate_value": [
            ("old.J + ", ""), ("(new_probs *", "(old_probs *"), ("solve(mdp, old_probs)", "solve(mdp, new_probs)"),
        ],
        "clipped_surrogate_value": [
            ("new_probs.log() - old_probs.log()", "old_probs.log() - new_probs.log()"),
            ("(old_probs * terms)", "terms"), ("old.J + ", ""), ("solve(mdp, old_probs)", "solve(mdp, new_probs)"),
        ],
        "trpo_bound": [
            ("4 * epsilon", "2 * epsilon"), ("4 * epsilon", "epsilon"), ("* mdp.gamma", ""), (", 2)", ", 1)"),
            (".abs().max()", ".max()"), ("surrogate - penalty,", "surrogate + penalty,"), ("mdp.gamma >= 1", "False"),
            ("solve(mdp, new_probs).J", "solve(mdp, old_probs).J"),
        ],
    },
    "evaluate.passk": {
        "pass_at_k": [
            ("comb(n - c, k)", "comb(c, k)"), (") / comb(n, k)", ")"), ("comb(n - c, k)) /", "comb(n - c, k) - 1) /"),
            ("value > high", "value >= high"), ("value < low", "value <= low"),
        ],
        "mean_pass_at_k": [("/ len(each)", ""), ("c_task, k=k", "c_task, k=1")],
    },
    "evaluate.statistics": {
        "welch_t_test": [
            ("_variance(x) / len(x)", "_variance(x)"), ("_mean(x) - _mean(y)", "_mean(y) - _mean(x)"),
            ("2 * stdtr", "stdtr"), ("(len(x) - 1)", "len(x)"), ("/ (va + vb)", "/ va"),
            ("0.0 if gap else 1.0", "1.0 if gap else 0.0"), ("(1 - share) ** 2", "share**2"), ("-abs(t)", "t"),
        ],
        "cohens_d": [
            ("- 2)", ")"), ("(len(x) - 1) *", "len(x) *"), ("math.sqrt(pooled)", "pooled"),
            ("_mean(x) - _mean(y)", "_mean(y) - _mean(x)"), ("if gap else 0.0", "if True else 0.0"),
        ],
        "hedges_g": [("- 9", "- 1"), ("1 - 3", "1 + 3"), ("np.asarray(a).size +", "")],
        "bootstrap_statistics": [(".mean(axis=-1)", ".sum(axis=-1)"), ("axis=-1", "axis=0")],
        "percentile_interval": [
            ("[alpha / 2,", "[alpha,"), ("1 - alpha / 2]", "1 - alpha]"),
            ("float(low), float(high)", "float(high), float(low)"),
        ],
        "bootstrap_ci": [
            ("default_rng(seed)", "default_rng()"), ("alpha=alpha", "alpha=0.05"),
            ("integers(len(sample),", "integers(len(sample) - 1,"),
            ("size=(resamples, len(sample))", "size=(resamples, 2)"),
        ],
        "_mean": [("x[0] + (x - x[0]).mean()", "x.mean()")],
        "_variance": [("len(x) - 1", "len(x)"), ("x - _mean(x)", "x")],
    },
    "scale.memory.zero": {
        "zero_bytes": [
            ("3: 2.0", "3: 4.0"), ("stage >= first", "stage > first"), ("size / devices", "size * devices"),
            ("optimizer_bytes: float = 12", "optimizer_bytes: float = 8"), ("1: float(optimizer_bytes)", "1: 12.0"),
        ],
    },
}  # fmt: skip
