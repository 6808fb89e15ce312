"""Answer to the transfer exercise of notebook 01: independent choices multiply, so their logs add."""


def joint_log_prob(logits, action):
    each = logits.log_softmax(-1).gather(-1, action[..., None])[..., 0]
    return each.sum(-1)
