"""Planted bugs in what works on steps: masks, returns, ratios, objectives, the critic."""

# module -> function -> (right, wrong) in its source
SOURCE: dict[str, dict[str, list[tuple[str, str]]]] = {
    "core.masking": {
        "upcast": [("(torch.float32, torch.float64)", "(torch.bfloat16, torch.float32, torch.float64)")],
        "select": [
            ("~mask", "mask"), ("x.masked_fill(~mask, 0)", "x * mask"), ("mask, 0)", "mask, 1)"),
            ("check_mask(mask, x)", "pass"),
        ],
        "masked_sum": [("select(upcast(x), mask)", "upcast(x)"), (".sum(", ".mean("), ("dim=dim,", "dim=-1,")],
        "masked_count": [("ones, mask,", "ones, None,"), ("torch.ones_like(", "2 * torch.ones_like(")],
        "masked_mean": [("count.clamp(min=1)", "upcast(x).numel()"), ("min=1)", "min=2)"), (".clamp(min=1)", "")],
        "centered": [
            ("x - masked_mean(x, mask, dim=dim, keepdim=True)\n    x =", "x\n    x ="),
            ("return select(x, mask)", "return x"), ("x = upcast(x)", "x = -upcast(x)"),
        ],
        "masked_var": [
            ("- ddof", "+ ddof"), ("ddof: int = 0", "ddof: int = 1"), (".square(), mask", ".abs(), mask"),
            ("freedom > 0", "freedom >= 0"), ("- ddof", ""),
        ],
        "length_mask": [("<", "<="), ("torch.arange(steps,", "1 + torch.arange(steps,")],
        "last_step": [("mask & ", ""), ("== 1", "== 2"), ("mask.flip(-1).cumsum(-1).flip(-1)", "mask.cumsum(-1)")],
        "standardize": [
            ("+ eps\n", "\n"), ("spread.sqrt()", "(spread.sqrt() + eps)"), ("spread.sqrt()", "spread"),
            ("ddof=ddof", "ddof=0"), ("> ddof", ">= ddof"), ("centered(x, mask)", "x"),
            ("eps: float = 1e-8", "eps: float = 1e-2"), ("spread = torch.where(spread > 0, spread, 1)", "pass"),
            ("masked_var(x, mask,", "masked_var(x, None,"),
        ],
        "rescale": [
            ("+ mean", ""), ("+ mean", "- mean"), ("return select(", "return ("), ("> ddof", ">= ddof"),
            ("masked_mean(x, mask), 0", "masked_mean(x), 0"),
        ],
        "step_weights": [
            ("one / one.sum()", "one / one.numel() * one.sum() / one.sum()"), ("one / tokens / rows", "one / tokens"),
            ("mask.any(-1).sum()", "mask.sum(-1).numel() * mask.any().sum()"), ("one / tokens / rows", "one / rows"),
            ("mask.shape[:-1].numel()", "rows"), ("length * mask", "mask"), ("return one / rows", "return one"),
            ("one.sum(-1, keepdim=True)", "one.sum(0, keepdim=True)"),
            ("str = \"token_mean\"", "str = \"sequence_mean\""),
        ],
    },
    "core.returns": {
        "next_values": [
            ("select(ahead, counts)", "ahead"), ("torch.where(counts, v, ahead)", "v"), ("[::-1]", ""),
            ("zeros_like(value", "ones_like(value"),
        ],
        "td_errors": [
            ("~terminated)", "terminated)"), ("- upcast(value)", "+ upcast(value)"), ("+ gamma *", "+"),
            ("select(upcast(next_value), ~terminated)", "upcast(next_value)"), ("+ gamma", "- gamma"),
        ],
        "discounted_returns": [
            ("ended & ~terminated", "ended"), ("ended & ~terminated", "~terminated"),
            ("gamma * bootstrap", "bootstrap"), (", gamma, ended, mask)", ", 1.0, ended, mask)"),
            ("gamma, ended, mask)", "gamma, terminated, mask)"), ("_ends(terminated, ended, mask)", "ended"),
            ("+ gamma", "- gamma"), ("gamma, ended, mask)", "gamma, ended, torch.ones_like(mask))"),
        ],
        "n_step_advantages": [
            ("- 1):", "):"), ("target[..., 1:], target[..., -1:]", "target[..., :1], target[..., :-1]"),
            ("torch.where(ended,", "torch.where(terminated,"), ("gamma * later", "later"), ("- upcast(value)", ""),
            ("ended, one_step,", "ended, upcast(reward),"),
            ("_ends(terminated, ended, None)", "ended"),
        ],
        "gae": [
            ("gamma * lam", "gamma"), ("gamma * lam", "lam"), ("gamma * lam, ended", "gamma * lam, terminated"),
            ("_ends(terminated, ended, mask)", "ended"), ("ended, mask)\n    check", "terminated, mask)\n    check"),
            ("gamma * lam, ended, mask)", "gamma * lam, ended, torch.ones_like(mask))"),
            ("terminated=terminated", "terminated=ended"),
        ],
        "_ends": [("| terminated", ""), ("ended |", "")],
        "_sum_backwards": [
            ("closed, 0)", "~closed, 0)"), (".masked_fill_(closed, 0)", ""), ("return select(x, mask)", "return x"),
            ("else select(x, mask), x.shape", "else x.clone(), x.shape"), ("closed & mask[..., :-1]", "closed"),
            ("weight.masked_fill(~mask[..., :-1], 1)", "weight"), (":-step] += (", ":-step] -= ("),
            ("weight[..., :-step] * weight[..., step:]", "weight[..., step:]"),
            ("closed[..., :-step] | closed[..., step:]", "closed[..., :-step]"), ("step *= 2", "step += 1"),
            ("closed[..., :-step] | closed[..., step:]", "closed[..., step:]"),
        ],
    },
    "core.importance": {
        "log_ratio": [
            ("- select", "+ select"), ("select(upcast(logp), mask)", "upcast(logp)"),
            ("select(upcast(old_logp), mask)", "upcast(old_logp)"),
            ("select(upcast(logp), mask) -", "select(upcast(logp), mask).exp() -"),
        ],
        "importance_weights": [
            (".exp()", ""), (".exp()", ".clamp(-20, 20).exp()"), ("upcast(log_ratio)", "upcast(-log_ratio)"),
        ],
        "effective_sample_size": [
            ("- largest", ""), ("sum().square() /", "sum() /"), (".clamp(min=1)", ""),
            ("weight = select(", "weight = (lambda w, m: w)("),
            ("torch.where(mask, x.detach(), -math.inf)", "x.detach()"), ("weight.square().sum()", "weight.sum()"),
        ],
    },
    "core.objectives": {
        "reinforce": [
            ("* weight", ""), ("weight != 0) *", "weight == weight) *"),
            ("select(upcast(logp),", "select(-upcast(logp),"),
        ],
        "surrogate": [
            (".exp()", ""), ("* advantage", "* advantage.abs()"), ("advantage != 0)", "advantage == advantage)"),
            (".exp()", ".expm1()"),
        ],
        "kl_penalized": [
            ("- beta", "+ beta"), ("beta * ", ""),
            ("surrogate(log_ratio, advantage)", "surrogate(-log_ratio, advantage)"),
        ],
        "clipped_surrogate": [
            ("advantage < 0", "advantage > 0"), ("masked_fill(bad, low)", "masked_fill(~bad, low)"),
            ("(bad, low)", "(bad, -math.inf)"), ("torch.full_like(x, high)", "torch.full_like(x, math.inf)"),
            ("math.log(dual_clip)", "dual_clip"), ("math.log(dual_clip)", "math.inf"),
            ("torch.full_like(x, -math.inf)", "torch.full_like(x, low)"), ("math.log(dual_clip)", "high"),
            ("x.clamp(floor, ceiling)", "x.clamp(low, high)"), ("x.clamp(floor, ceiling)", "x"),
            ("surrogate(x.clamp(floor, ceiling), advantage)", "x.exp().clamp(floor.exp(), ceiling.exp()) * advantage"),
            ("dual_clip: float = math.inf", "dual_clip: float = 3.0"),
        ],
        "clip_fraction": [
            ("(x < low) | (x > high)", "x > high"), ("(x < low) | (x > high)", "x < low"), ("x > high", "x >= high"),
            ("x < low", "x <= low"), (", mask)\n", ")\n"), ("x = upcast(log_ratio)", "x = upcast(log_ratio).exp()"),
        ],
        "active_clip_fraction": [
            ("advantage > 0", "advantage >= 0"), ("| ((advantage < 0) & (x < low))", ""),
            ("((advantage > 0) & (x > high)) |", ""), ("advantage < 0", "advantage <= 0"), ("x > high", "x < high"),
            (", mask)\n", ")\n"), ("x > high", "x >= high"), ("x < low", "x <= low"),
        ],
        "log_band": [
            ("math.log1p(-low)", "-low"), ("math.log1p(high)", "high"), ("(clip, clip)", "(0.0, clip)"),
            ("if low < 1", "if low < 2"), ("math.log1p(-low)", "-math.log1p(low)"), ("else clip", "else clip[::-1]"),
        ],
    },
    "core.values": {
        "value_error": [("/ 2", ""), (".square()", ".abs()"), ("- upcast", "+ upcast")],
        "clipped_value_error": [
            ("bound > free", "bound < free"),
            ("torch.where(bound > free, bound, free)", "torch.maximum(bound, free)"),
            ("bound > free, bound, free", "bound > free, free, free"), ("bound > free", "bound >= free"),
        ],
        "value_clip_fraction": [
            ("bound > free", "bound >= free"), ("bound > free", "bound < free"), (", mask)\n", ")\n"),
        ],
        "explained_variance": [
            ("1 - masked_var", "masked_var"), ("/ total", "/ masked_var(value, mask)"), ("total > 0", "total >= -1"),
            ("masked_var(target - value, mask)", "masked_mean((target - value).square(), mask)"),
            ("target, mask)\n    return", "target)\n    return"), ("torch.nan", "0"),
        ],
        "_errors": [
            ("old_value - clip", "old_value"), ("old_value + clip", "value + clip"),
            ("value.clamp(old_value - clip, old_value + clip)", "old_value + (value - old_value).clamp(-clip, clip)"),
            ("value_error(held, target)", "value_error(held, old_value)"),
        ],
    },
}  # fmt: skip
