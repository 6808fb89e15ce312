"""ZeRO's arithmetic: the paper's figures, and what each stage divides."""

from __future__ import annotations

from ppo_lab.scale.memory import zero_bytes


def test_the_papers_figures() -> None:
    """Rajbhandari et al. 2020, fig. 1: 7.5 B parameters on 64 devices, in GB of 1e9 bytes."""
    found = [zero_bytes(7.5e9, devices=64, stage=s) / 1e9 for s in range(4)]
    assert [round(x, 1) for x in found] == [120, 31.4, 16.6, 1.9]


def test_each_stage_divides_one_part_more() -> None:
    one, four = (([zero_bytes(100, devices=d, stage=s, optimizer_bytes=8) for s in range(4)]) for d in (1, 4))
    assert one == [1200] * 4 and four == [1200, 400 + 200, 200 + 50 + 200, 300]
