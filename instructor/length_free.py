"""Answer to the transfer exercise of notebook 11: the residual of a least-squares line, with its mean put back."""


def length_free(score, length):
    away = length - length.mean()
    size = (away**2).sum()
    slope = (score * away).sum() / size if size > 0 else 0.0
    return score - slope * away
