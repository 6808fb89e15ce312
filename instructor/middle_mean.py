"""Answer to the transfer exercise of notebook 07: sort, set a quarter aside at each end, average the rest."""


def middle_mean(score):
    ordered = score.sort().values
    quarter = len(score) // 4
    return ordered[quarter : len(score) - quarter].mean()
