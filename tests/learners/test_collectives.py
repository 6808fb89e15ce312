"""Sums, rows and shares: on one process by hand, on two and three real ones by `collective_jobs.py`."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
import torch
from learners import collective_jobs
from learners.gloo import run_ranks

from ppo_lab.learners.collectives import gather, rank, rounds, share, total, world


@pytest.mark.distributed
@pytest.mark.parametrize("processes", [2, 3])
def test_on_real_processes(processes: int, tmp_path: Path) -> None:
    jobs = [name for name in vars(collective_jobs) if name.startswith("job_")]
    assert len(jobs) == 10
    for output in run_ranks(Path(collective_jobs.__file__), processes, tmp_path):
        assert [line for line in output.splitlines() if line.startswith("job_")] == jobs


def test_on_one_process_everything_is_itself() -> None:
    assert (rank(), world()) == (0, 1)
    x = torch.randn(3, requires_grad=True)
    assert torch.equal(total(x), x) and not total(x).requires_grad
    assert total(2) == 2 and total(0.1) == 0.1 and total(True) == 1
    assert torch.equal(total(torch.tensor([True, False])), torch.tensor([1, 0]))
    record = collective_jobs.sample(3, seed=0)
    assert gather(record) is record


def test_gather_refuses_scalars_on_one_process_too() -> None:
    with pytest.raises(ValueError, match="record.x must have one row a sample, got a scalar on rank 0; make"):
        gather(collective_jobs.Outer(x=torch.tensor(1.0), note=""))


SIZES = list(itertools.product(range(14), range(1, 6)))


def test_shares_are_a_partition_in_rank_order() -> None:
    for n, processes in SIZES:
        rows = [list(range(n))[share(n, r, processes)] for r in range(processes)]
        assert list(itertools.chain(*rows)) == list(range(n))
        sizes = [len(mine) for mine in rows]
        assert max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("micro", [1, 2, 3, 20])
def test_rounds_are_equally_many_on_every_rank_and_cover_its_share(micro: int) -> None:
    for n, processes in SIZES:
        everybody = [rounds(n, processes, r, micro) for r in range(processes)]
        largest = math.ceil(n / processes)
        assert {len(mine) for mine in everybody} == {math.ceil(largest / micro)}
        for r, mine in enumerate(everybody):
            rows = [list(range(n))[part] for part in mine]
            assert all(0 <= part.start <= part.stop <= n for part in mine)
            assert list(itertools.chain(*rows)) == list(range(n))[share(n, r, processes)]
            assert all(len(part) <= micro for part in rows)


def test_shares_and_rounds_check_what_they_are_told() -> None:
    with pytest.raises(ValueError, match="rank must lie in 0 … world - 1, got rank 2 of 2; pass the learner's own"):
        share(4, 2, 2)
    with pytest.raises(ValueError, match="micro-batch must be at least 1 row, got 0"):
        rounds(4, 1, 0, 0)
