"""What every rank asserts in `test_collectives.py`; run with two and with three processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from learners.gloo import join
from learners.modules import TwoHeads
from torch import Tensor

from ppo_lab import seeding
from ppo_lab.core.masking import step_weights
from ppo_lab.learners.collectives import (
    SharedError,
    everywhere,
    first_sum,
    gather,
    rank,
    rounds,
    share,
    total,
    world,
)
from ppo_lab.learners.plain import PlainLearner
from ppo_lab.records import concatenate, take, walk

ROWS = (3, 0, 2)  # of each rank: unequal, and none at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    tokens: Tensor
    mask: Tensor
    half: Tensor
    small: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    x: Tensor
    note: str
    inner: Inner | None = None
    extra: Tensor | None = None
    strided: Tensor | None = None


def fails(call: Any, *parts: str) -> None:
    """The call raises on every rank, with these words, and the ranks are still in step afterwards."""
    try:
        call()
    except ValueError as error:
        assert all(part in str(error) for part in parts), error
    else:
        raise AssertionError("no error")
    assert total(1) == world()


def sample(rows: int, *, seed: int) -> Outer:
    """Rows that only this seed has, of every kind a record may hold."""
    g = seeding.generator("sample", seed)
    ids, floats = torch.randint(0, 99, (rows, 7), generator=g), torch.randn(rows, 4, generator=g, dtype=torch.float64)
    inner = Inner(tokens=ids, mask=ids > 50, half=floats.bfloat16(), small=ids[:, 0].to(torch.uint8))
    return Outer(x=floats, note=f"of {seed}", inner=inner, strided=floats.float().t().contiguous().t()[:, 1:])


def tensors(record: Any) -> list[Tensor]:
    found: list[Tensor] = []

    def note(x: Tensor) -> Tensor:
        found.append(x)
        return x

    walk(record, note)
    return found


def same(a: Any, b: Any) -> bool:
    pairs = list(zip(tensors(a), tensors(b), strict=True))
    return all(x.dtype == y.dtype and torch.equal(x, y) for x, y in pairs) and bool(pairs)


def job_total() -> None:
    r, w = rank(), world()
    assert total(float(r) + 0.5) == sum(range(w)) + 0.5 * w and isinstance(total(0.5), float)
    assert total(r) == sum(range(w)) and isinstance(total(r), int)
    assert total(True) == w and type(total(True)) is int
    assert total(2**60) == w * 2**60  # whole numbers stay exact
    assert torch.equal(total(torch.tensor([True, r == 0])), torch.tensor([w, 1]))
    assert total(torch.ones(2, dtype=torch.bfloat16, requires_grad=True)).dtype == torch.bfloat16
    assert not total(torch.ones(2, requires_grad=True)).requires_grad
    mine = torch.full((3,), r, dtype=torch.float64)
    total(mine)
    assert torch.equal(mine, torch.full((3,), r, dtype=torch.float64))  # not in place
    small = total(torch.tensor(1.0 if r == 0 else 1e-8, dtype=torch.float32).expand(1000))
    assert torch.allclose(small, torch.tensor(1.0 + (w - 1) * 1e-8), rtol=0, atol=1e-7)  # a float32 ulp
    scattered = total(torch.randn(1000, dtype=torch.float64, generator=seeding.generator(r)))
    assert torch.equal(gather(scattered[None]), scattered.expand(w, -1))  # the same bits on every rank


def job_token_mean_of_all_ranks() -> None:
    """Rank A flags 3 of 12 tokens, rank B 3 of 4: 6/16, not the mean of 0.25 and 0.75."""
    flagged, tokens = ((3, 12), (3, 4), (0, 0))[rank()]
    assert total(float(flagged)) / total(float(tokens)) == 0.375


def job_gather_rows() -> None:
    r, w = rank(), world()
    whole = concatenate([sample(ROWS[i], seed=i) for i in range(w)])
    got = gather(sample(ROWS[r], seed=r))
    assert same(got, whole) and len(tensors(got)) == 6 and len(got.x) == sum(ROWS[:w])
    assert got.note == f"of {r}" and got.extra is None  # plain values are this rank's own
    assert gather(torch.empty(0, 3)).shape == (0, 3)  # nobody has rows
    assert gather(torch.empty(ROWS[r], 0)).shape == (sum(ROWS[:w]), 0)  # rows of no width
    nan = torch.full((ROWS[r],), float("nan"), dtype=torch.float64)
    assert gather(nan).isnan().all() and len(gather(nan)) == sum(ROWS[:w])
    assert not gather(torch.ones(1, requires_grad=True)).requires_grad


def job_gather_does_not_ask_a_rank_without_rows_for_a_width() -> None:
    r, w = rank(), world()
    mine = torch.ones(2, 5, dtype=torch.float64) if r == 0 else torch.empty(0, 1, dtype=torch.float32)
    assert torch.equal(gather(mine), torch.ones(2, 5, dtype=torch.float64)) and w > 1


def job_gather_errors_are_everybodys() -> None:
    r = rank()
    fails(lambda: gather(torch.ones(1, 2 + r)), "record must have rows of one dtype and width on all ranks", "(1, 3)")
    fails(lambda: gather(torch.ones(1, dtype=torch.float64 if r else torch.float32)), "one dtype and width")
    fails(lambda: gather(torch.tensor(1.0)), "record must have one row a sample, got a scalar on rank 0")
    extra = torch.ones(1) if r == 1 else None
    fails(lambda: gather(Outer(x=torch.ones(1), note="", extra=extra)), "record.extra", "ranks 0 and 1")


def job_share_then_gather_is_everything() -> None:
    for n in (0, 1, 2, 7):
        whole = sample(n, seed=5)
        mine = share(n, rank(), world())
        assert same(gather(take(whole, mine)), whole)
        noise = seeding.uniforms(0, 1, range(mine.start, mine.stop), 4)
        assert torch.equal(gather(noise), seeding.uniforms(0, 1, range(n), 4))


def job_rounds_are_in_step_and_exact() -> None:
    """One collective a round, unequal shares, weights of the whole minibatch: the gradient of one process."""
    x = torch.randn(7, 5, 3, dtype=torch.float64, generator=seeding.generator("x"))
    mask = torch.arange(5) < torch.tensor([1, 5, 2, 0, 3, 5, 4])[:, None]
    for rows in (7, 2, 1):
        for micro in (1, 2, 8):
            weight = step_weights(mask[:rows], "token_mean", dtype=torch.float64)
            model, alone = TwoHeads().double().eval(), TwoHeads().double().eval()
            for part in rounds(rows, world(), rank(), micro):
                (model(x[part])["value"].square() * weight[part]).sum().backward()
                total(1)
            (alone(x[:rows])["value"].square() * weight).sum().backward()
            for (name, p), q in zip(model.named_parameters(), alone.parameters(), strict=True):
                if q.grad is not None:
                    torch.testing.assert_close(total(p.grad), q.grad, rtol=0, atol=1e-14, msg=name)


def job_what_fails_on_one_rank_is_raised_on_all() -> None:
    """The first rank that failed is named; its own error has the cause; all are in step afterwards."""
    assert everywhere(rank) == rank()
    cause = KeyError("word")
    for failing in ({world() - 1}, {0}, set(range(world()))):

        def work(failing: set[int] = failing) -> None:
            if rank() in failing:
                raise cause

        try:
            everywhere(work)
        except SharedError as error:
            assert str(error) == f"rank {min(failing)}: KeyError: 'word'"
            assert error.__cause__ is (cause if rank() in failing else None)
        else:
            raise AssertionError("no error")
        assert total(1) == world()


def job_a_sum_on_the_first_rank_keeps_every_bit() -> None:
    """Each number is one rank's own: -0.0, the smallest, not a number with a payload."""
    own = torch.tensor([-0.0, 1e-45, float("nan"), -3.5])
    own.view(torch.int32)[2] += 5
    sent = torch.zeros(4 * world())
    sent[4 * rank() : 4 * rank() + 4] = own
    got = first_sum(sent)
    assert rank() > 0 or torch.equal(got.view(torch.int32), own.repeat(world()).view(torch.int32))


def job_plain_is_for_one_process() -> None:
    fails(
        lambda: PlainLearner(TwoHeads(), actor_rate=1.0, critic_rate=1.0, device="cpu"),
        f"learner plain needs 1 process, got {world()}",
    )


def main() -> None:
    assert (rank(), world(), total(3)) == (0, 1, 3)  # before anything was launched
    launched = join()
    assert (rank(), world()) == launched
    for name, job in [(name, job) for name, job in globals().items() if name.startswith("job_")]:
        job()
        print(name)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
