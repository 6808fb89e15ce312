"""Answer to the transfer exercise of notebook 06: the Gaussian's log-probability less the log of tanh's slope."""

import math

from torch.nn.functional import softplus

from ppo_lab.core.distributions import gaussian_logp


def squashed_logp(mean, log_std, u):
    logp = gaussian_logp(mean, log_std, u)
    log_slope = 2 * (math.log(2) - u - softplus(-2 * u))
    return logp - log_slope.sum(-1)
