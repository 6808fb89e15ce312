"""Answer to the transfer exercise of notebook 12: k − 1 of the subset are better, n − k are worse."""

from math import comb

import torch


def kth_of_n(score, value, *, n, k):
    size = len(score)
    ways = [comb(i, n - k) * comb(size - 1 - i, k - 1) for i in range(size)]
    weight = torch.tensor(ways, dtype=torch.float64) / comb(size, n)
    return (weight * value[score.argsort()]).sum()
