"""Answer to the transfer exercise of notebook 17: a token weighs 1/(W n_r) and should weigh 1/N."""


def loss_factor(tokens):
    everywhere = tokens.sum()
    return len(tokens) * tokens / everywhere
