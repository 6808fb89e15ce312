"""The pre-training mix: its gradient is added to that of PPO, whatever the micro-batches and ranks; it resumes."""

from __future__ import annotations

import pytest
import torch
from small_runs import config, log_of, same_tensors
from tiny import PAD, VOCABULARY, tiny

from ppo_lab import checkpoint, seeding
from ppo_lab.config import ConfigError
from ppo_lab.config.ppo import PPOConfig
from ppo_lab.learners.plain import PlainLearner
from ppo_lab.records import StepBatch, TextInputs
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.assess import Lens, make_assess
from ppo_lab.rlhf.models.actor_critic import ActorCritic, ValueHead
from ppo_lab.rlhf.ptx import PretrainingMix
from ppo_lab.update import ppo_update

DRAW = seeding.generator("ptx")
ROWS = [torch.randint(2, VOCABULARY, (n,), generator=DRAW).tolist() for n in (5, 9, 2, 7, 4, 6, 3)]
CFG = PPOConfig(epochs=1, minibatches=1, value_clip=None, standardize="none")


class Seen(PlainLearner):
    """Keeps the gradient of each step; may be told that it is one rank of several."""

    def __init__(self, shared: bool = False, rank: int = 0, world: int = 1):
        critic = None if shared else tiny("gpt2", seed=3).double().transformer
        head = ValueHead(32, std=0.1, generator=seeding.generator("head")).double()
        module = ActorCritic(tiny("gpt2").double(), head, critic)
        super().__init__(module, actor_rate=1e-3, critic_rate=1e-3, max_norm=None, device="cpu")
        self.rank, self.world, self.calls, self.found = rank, world, 0, []

    def forward(self, **inputs):
        self.calls += 1
        return super().forward(**inputs)

    def gradients(self):
        return {n: torch.zeros_like(p) if p.grad is None else p.grad.clone() for n, p in self.parameters.items()}

    def step(self, actor=1.0, critic=1.0):
        self.found.append(self.gradients())
        return super().step(actor, critic)


def mix(*, coef: float = 0.7, batch: int = 5, micro: int | None = None) -> PretrainingMix:
    return PretrainingMix(ROWS, PAD, coef, batch, micro, seed=0)


def batch() -> StepBatch:
    tokens = torch.randint(2, VOCABULARY, (3, 8), generator=seeding.generator("rows"))
    inputs = TextInputs(tokens=tokens, attention=torch.ones_like(tokens).bool(), response=tokens[:, -4:])
    old = {n: x.detach() for n, x in Seen().forward(tokens=tokens, attention=inputs.attention,
                                                    response=inputs.response).items()}  # fmt: skip
    draw = torch.randn(2, 3, 4, generator=seeding.generator("advantage"), dtype=torch.float64)
    return StepBatch(inputs=inputs, old_logp=old["logp"], old_value=old["value"], advantage=draw[0], return_=draw[1],
                     mask=torch.ones(3, 4).bool())  # fmt: skip


def likelihood_gradient(rows: list[list[int]]) -> tuple[float, dict[str, torch.Tensor]]:
    """Of the mean log-likelihood a token, row by row through transformers' own logits."""
    model, total, n = tiny("gpt2").double(), 0.0, 0
    for row in rows:
        ids = torch.tensor([row])
        logp = model(input_ids=ids).logits[0, :-1].log_softmax(-1)
        total, n = total + logp.gather(-1, ids[0, 1:, None]).sum(), n + len(row) - 1
    (total / n).backward()
    return float(total.detach() / n), {f"policy.{name}": p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize("shared", [False, True])
def test_the_gradient_is_the_sum_of_both(shared):
    some, with_mix, without = batch(), Seen(shared), Seen(shared)
    ppo = ppo_update(without, some, make_assess(Lens()), CFG, seed=0)
    both = ppo_update(with_mix, some, make_assess(Lens()), CFG, seed=0, beside=mix().beside(0, steps=1))
    mean, wanted = likelihood_gradient([ROWS[i] for i in mix().chosen(0)])
    assert ppo.ptx_loss is None and both.ptx_loss == pytest.approx(-mean, abs=1e-12)
    assert both.policy_loss == ppo.policy_loss and both.value_loss == ppo.value_loss
    for name, g in with_mix.found[0].items():
        extra = -0.7 * wanted[name] if name in wanted else 0 * g
        torch.testing.assert_close(g, without.found[0][name] + extra, rtol=0, atol=1e-12)
    assert max(float(x.abs().max()) for x in wanted.values()) > 1e-3, "or nothing would be tested"


@pytest.mark.parametrize("micro", [1, 2, 4])
def test_micro_batches_change_nothing(micro):
    whole, parts = Seen(), Seen()
    loss = mix().accumulate(whole, 3)
    assert mix(micro=micro).accumulate(parts, 3) == pytest.approx(loss, abs=1e-12)
    assert parts.calls == -(-5 // micro) and whole.calls == 1
    for name, g in parts.gradients().items():
        torch.testing.assert_close(g, whole.gradients()[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize(("world", "micro"), [(2, None), (3, 1), (7, 2)])
def test_ranks_change_nothing_and_run_the_same_number_of_forwards(world, micro):
    whole, ranks = Seen(), [Seen(rank=r, world=world) for r in range(world)]
    loss = mix().accumulate(whole, 1)
    assert sum(mix(micro=micro).accumulate(rank, 1) for rank in ranks) == pytest.approx(loss, abs=1e-12)
    assert len({rank.calls for rank in ranks}) == 1
    for name, g in whole.gradients().items():
        torch.testing.assert_close(sum(r.gradients()[name] for r in ranks), g, rtol=0, atol=1e-12)


def test_texts_come_epoch_after_epoch_in_an_order_of_the_seed():
    chosen = [i for n in range(7) for i in mix().chosen(n)]
    assert [sorted(chosen[i : i + 7]) for i in range(0, 35, 7)] == [list(range(7))] * 5
    assert chosen[:7] != chosen[7:14] and chosen == [i for n in range(7) for i in mix().chosen(n)]
    beside = mix().beside(2, steps=4)
    assert beside(Seen(), 3) == mix().accumulate(Seen(), 11)


def test_a_policy_that_rests_reads_no_texts():
    called = []
    for options in ({"actor": 0.0}, {}):
        cfg = CFG.model_copy(update={"epochs": 3, "target_kl": 1e-12 if not options else None})
        found = ppo_update(Seen(), batch(), make_assess(Lens()), cfg, seed=0, **options,
                           beside=lambda _, n: called.append(n) or 1.0)  # fmt: skip
        assert found.ptx_loss == (None if options else 1.0)
    assert called == [0], "the second epoch was stopped before it"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ptx") / "run"
    run = Run(config(ppo__ptx_coef=0.5, ppo__ptx_batch=7), folder=folder)
    return run, list(run)


def test_a_run_logs_the_loss_of_the_corpus_and_resumes_to_the_bit(whole, tmp_path):
    run, steps = whole
    assert all(0 < step.update.ptx_loss < 6 for step in steps)
    again = Run(config(ppo__ptx_coef=0.5, ppo__ptx_batch=7), folder=tmp_path / "run")
    for step in again:
        if step.step == 2:
            again.stop()
    list(Run(config(ppo__ptx_coef=0.5, ppo__ptx_batch=7), folder=tmp_path / "run", resume=True))
    assert log_of(tmp_path / "run") == log_of(run.folder)
    mine, theirs = (checkpoint.load(checkpoint.latest(f)) for f in (tmp_path / "run", run.folder))
    assert same_tensors(mine[0], theirs[0]) and mine[1] == theirs[1]


def test_a_large_weight_makes_it_imitation(whole, tmp_path):
    """γ of 100 drowns the reward: the corpus gets likelier than under a small γ."""
    far = list(Run(config(ppo__ptx_coef=100.0, ppo__ptx_batch=7), folder=tmp_path / "run"))
    assert far[-1].update.ptx_loss < whole[1][-1].update.ptx_loss < whole[1][0].update.ptx_loss + 1


def test_without_texts_it_is_refused_and_so_is_a_text_that_does_not_fit(tmp_path):
    import json

    rows = [{"prompt": f"the film {i}"} for i in range(60)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = dict(ppo__ptx_coef=0.1, corpus__kind="jsonl", corpus__path=str(tmp_path / "prompts.jsonl"),
                corpus__prompt_field="prompt", sft__steps=0)  # fmt: skip
    with pytest.raises(ConfigError, match="ppo.ptx_coef above 0 needs texts to imitate, got none; set corpus.field"):
        Run(config(**data), folder=tmp_path / "run")
    with pytest.raises(ConfigError, match="policy.context must hold every text with its EOS, 1[0-9]+ tokens in text"):
        Run(config(ppo__ptx_coef=0.1, sft__steps=0, corpus__sentences=8), folder=tmp_path / "long")
