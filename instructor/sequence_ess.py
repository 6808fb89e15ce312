"""Answer to the transfer exercise of notebook 03: ratios multiply, so their logs add up."""

from ppo_lab.core.importance import effective_sample_size, log_ratio


def sequence_ess(logp, old_logp, mask):
    answers = log_ratio(logp, old_logp, mask).sum(-1)
    return effective_sample_size(answers)
