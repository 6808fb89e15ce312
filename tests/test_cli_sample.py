"""`ppo-lab sample` on a real run: answers on one stream, what the model cannot read on the other."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_runs import config
from typer.testing import CliRunner

from ppo_lab.cli import app
from ppo_lab.cli.loop import Told
from ppo_lab.rlhf import Run
from ppo_lab.rlhf.models.build import load_tokenizer
from ppo_lab.rlhf.tokens import nearest_words, unknown_words


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    made = Run(config(steps=1, sft__steps=1, ppo__epochs=1), folder=tmp_path_factory.mktemp("sample") / "run")
    list(made)
    return made


@pytest.fixture(autouse=True)
def nobody_listens_yet() -> Iterator[None]:
    log = logging.getLogger("ppo_lab")
    handlers, level = list(log.handlers), log.level
    log.handlers[:] = []  # another test may have trained in this process
    log.setLevel(logging.NOTSET)
    yield
    log.handlers[:] = handlers
    log.setLevel(level)


def test_unknown_words_are_named_beside_the_answers(run: Run) -> None:
    done = CliRunner().invoke(app, ["sample", str(run.folder), "this Movie was", "zygote and this qqq"])
    assert done.exit_code == 0, done.output
    assert [line.split(" … ")[0] for line in done.stdout.splitlines()] == ["this Movie was", "zygote and this qqq"]
    (line,) = done.stderr.splitlines()
    assert "reads <unk> instead: 'Movie' (did you mean 'movie'?), 'zygote', 'qqq'" in line


def test_known_words_make_no_noise(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    assert CliRunner().invoke(app, ["sample", str(run.folder), "this movie was"]).stderr == ""
    run.generate(run.sample_prompts)
    assert not caplog.records
    run.generate(["Movie Movie", "was"])
    assert [r.message.count("'Movie'") for r in caplog.records] == [1]


def test_a_byte_level_tokenizer_knows_every_word(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = {token: i for i, token in enumerate(["<end>", *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    backend = Tokenizer(models.BPE(letters, []))
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>", unk_token="<end>").save_pretrained(tmp_path)
    tokenizer = load_tokenizer(str(tmp_path))  # as GPT-2: the unknown token is the end token
    assert tokenizer.unk_token_id == 0 and unknown_words(tokenizer, ["zygote ☃ <end>"]) == []


def test_several_handlers_for_several_streams() -> None:
    from ppo_lab.cli.loop import listen
    from ppo_lab.cli.shared import aside, out

    log = logging.getLogger("ppo_lab")
    for console, level in ((out, logging.INFO), (aside, logging.WARNING), (aside, logging.WARNING)):
        listen(console, level)
    told = {handler.console is out: handler.level for handler in log.handlers if isinstance(handler, Told)}
    assert told == {True: logging.INFO, False: logging.WARNING} and log.level == logging.INFO


def test_the_nearest_word_is_one_of_the_vocabulary(run: Run) -> None:
    tokenizer = run.parts.tokenizer
    assert nearest_words(tokenizer, ["PICTUR", "xx", "eos"]) == "'PICTUR' (did you mean 'picture'?), 'xx', 'eos'"
