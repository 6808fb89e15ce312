"""Answer to the transfer exercise of notebook 10; `token_rewards` is what the learner wrote before."""

import torch

from ppo_lab.rlhf.rewards import token_rewards


def stop_bonus(score, stopped, logp, ref_logp, mask, *, beta, bonus):
    paid = score + torch.where(stopped, bonus, -bonus)
    return token_rewards(paid, logp, ref_logp, mask, beta=beta)
