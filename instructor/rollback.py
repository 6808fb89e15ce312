"""Answer to the transfer exercise of notebook 04: where the clip is flat, r A runs ahead by what is to be lost."""

from ppo_lab.core.objectives import clipped_surrogate


def rollback(log_ratio, advantage, *, clip, slope):
    term = clipped_surrogate(log_ratio, advantage, clip=clip)
    ahead = log_ratio.exp() * advantage - term
    return term - slope * ahead
