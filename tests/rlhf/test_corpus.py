"""Corpora: no prompt on both sides, columns beside their prompts, and errors that say what to change."""

from __future__ import annotations

import builtins
import json
import sys
import types

import pytest

from ppo_lab.config import ConfigError
from ppo_lab.config.language import CorpusConfig
from ppo_lab.rlhf.corpus import Corpus, first_words, load_corpus
from ppo_lab.rlhf.corpus.grammar import is_grammatical


def disjoint(corpus: Corpus) -> bool:
    return not (set(corpus.train_prompts) & set(corpus.held_out_prompts)) and not (
        set(corpus.train_texts) & set(corpus.held_out_texts)
    )


def test_grammar_is_split_by_prompt_and_keyed_by_seed():
    cfg = CorpusConfig(size=1500, held_out=200)
    corpus = load_corpus(cfg, seed=0)
    assert disjoint(corpus) and len(corpus.held_out_prompts) == len(corpus.held_out_texts) == 200
    assert len(set(corpus.held_out_prompts)) > 30, "few prompts are frequent: many different ones are put aside"
    assert len(set(corpus.train_texts)) == len(corpus.train_texts) == len(corpus.train_prompts)
    for prompt, text in zip(corpus.train_prompts, corpus.train_texts, strict=True):
        assert text.startswith(prompt + " ") and 2 <= len(prompt.split()) <= 4 and is_grammatical(text)
    assert load_corpus(cfg, seed=0) == corpus
    other = load_corpus(cfg, seed=1)
    assert other.train_texts != corpus.train_texts and other.held_out_prompts != corpus.held_out_prompts


def test_sentences_make_longer_texts():
    corpus = load_corpus(CorpusConfig(size=50, held_out=5, sentences=3), seed=0)
    assert all(is_grammatical(text, sentences=3) for text in corpus.train_texts)


def test_text_file(tmp_path):
    lines = [f"word{i} two three four" for i in range(40)] + ["", "word0 two three four", "  alone  "]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    cfg = CorpusConfig(kind="text", path=str(tmp_path / "a.txt"), held_out=8, prompt_words=(1, 2))
    corpus = load_corpus(cfg, seed=0)
    assert disjoint(corpus) and len(corpus.train_texts) == 41 - 8 and len(corpus.train_prompts) == 40 - 8
    assert "alone" in corpus.train_texts, "too short to cut a prompt from, still imitated"
    assert len(load_corpus(cfg.model_copy(update={"size": 20}), seed=0).train_texts) == 20 - 8


def test_jsonl_prompts_and_columns_stay_together(tmp_path):
    rows = [{"question": f"q{i}", "answer": f"q{i} a{i}", "key": i, "tag": "x"} for i in range(30)]
    rows[3].pop("tag")
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n", encoding="utf-8")
    cfg = CorpusConfig(kind="jsonl", path=str(path), field="answer", prompt_field="question", held_out=6)
    corpus = load_corpus(cfg, seed=2)
    assert disjoint(corpus) and set(corpus.columns) == {"key", "tag"} and len(corpus.train_prompts) == 24
    for prompts, columns in [
        (corpus.train_prompts, corpus.columns),
        (corpus.held_out_prompts, corpus.held_out_columns),
    ]:
        assert prompts == [f"q{key}" for key in columns["key"]]
        assert columns["tag"] == [None if key == 3 else "x" for key in columns["key"]]
    alone = cfg.model_copy(update={"field": "nothing"})
    assert load_corpus(alone, seed=2).train_texts == [], "ready prompts need no texts"


def test_held_out_prompts_repeat_where_there_are_few(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(f"p{i} x y" for i in range(6)), encoding="utf-8")
    cfg = CorpusConfig(kind="text", path=str(tmp_path / "a.txt"), held_out=10, prompt_words=(1, 1))
    corpus = load_corpus(cfg, seed=0)
    assert len(corpus.held_out_prompts) == 10 and len(set(corpus.held_out_prompts)) == 3 and disjoint(corpus)


def test_first_words_keeps_the_text_as_it_stands():
    assert first_words(" a  b\tc d", 3) == " a  b\tc"
    assert first_words("a b", 2) is None and first_words("", 1) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "text"}, "corpus.path must name a file for corpus.kind text, got None; set corpus.path"),
        ({"kind": "jsonl", "path": "no/such.jsonl"}, "corpus.path must name an existing file, got 'no/such.jsonl'"),
        (
            {"kind": "jsonl", "path": "{good}", "field": "txt"},
            "corpus.field 'txt' is not a key of row 0 .* did you mean text",
        ),
        ({"kind": "jsonl", "path": "{good}", "field": "n"}, "corpus.field 'n' must hold a string, got int in row 0"),
        ({"kind": "jsonl", "path": "{bad}"}, "line 2 must be a JSON object"),
        ({"kind": "text", "path": "{empty}"}, "must hold at least one text, got none"),
        ({"kind": "jsonl", "path": "{empty}"}, "must hold at least one text, got none"),
        ({"kind": "text", "path": "{one}"}, "corpus.held_out needs at least two different prompts"),
        ({"prompt_words": (4, 2)}, r"corpus.prompt_words must be \[fewest, most\], got \[4, 2\]; use \[2, 4\]"),
    ],
)
def test_bad_corpora_are_named(tmp_path, settings, message):
    files = {
        "good": '{"text": "a b c", "n": 1}\n' * 3,
        "bad": '{"text": "a b"}\n{oops\n',
        "empty": "\n \n",
        "one": "a b c d e",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    if "{" in settings.get("path", ""):
        settings = settings | {"path": str(tmp_path / settings["path"].strip("{}"))}
    with pytest.raises(ConfigError, match=message):
        load_corpus(CorpusConfig(**settings), seed=0)


def test_dataset_rows_and_what_can_go_wrong(monkeypatch):
    cfg = CorpusConfig(
        kind="dataset", path="someone/films/english", split="test", held_out=4, size=25, prompt_words=(1, 1)
    )
    asked = {}

    def load_dataset(*args, **options):
        asked.update(options, args=args)
        return ({"text": f"w{i} is good", "stars": i} for i in range(10**9))

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    corpus = load_corpus(cfg, seed=0)
    assert asked == {"args": ("someone/films", "english"), "split": "test", "streaming": True}
    assert len(corpus.train_texts) == 21 and corpus.train_prompts == [f"w{i}" for i in corpus.columns["stars"]]

    def offline(*args, **options):
        raise ConnectionError("Couldn't reach the hub")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=offline))
    with pytest.raises(
        ConfigError, match="corpus.path 'someone/films/english' .*could not be read.*Couldn't reach the hub"
    ):
        load_corpus(cfg, seed=0)

    real = builtins.__import__
    monkeypatch.delitem(sys.modules, "datasets")

    def without(name, *args, **options):
        if name == "datasets":
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match="pip install datasets"):
        load_corpus(cfg, seed=0)


def test_human_reviews_take_the_split_of_the_reviews(tmp_path):
    rows = [{"id": f"m{i}", "source": "movie", "rating": i % 9 - 4.0, "text": f"film number {i} is rather long and odd"}
            for i in range(300)]  # fmt: skip
    (tmp_path / "reviews.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    cfg = CorpusConfig(kind="human-reviews", path=str(tmp_path), held_out=20, prompt_words=(3, 4))
    corpus = load_corpus(cfg, seed=0)
    assert disjoint(corpus) and len(corpus.held_out_prompts) == 20
    assert {len(prompt.split()) for prompt in corpus.train_prompts} == {3, 4}
    assert not any(text.startswith(p + " ") for p in set(corpus.held_out_prompts) for text in corpus.train_texts)


def test_another_kind_can_be_handed_in():
    made = Corpus(train_texts=["a"], train_prompts=["a"], held_out_prompts=["b"], held_out_texts=["b"])
    cfg = CorpusConfig(kind="language")
    assert load_corpus(cfg, seed=0, sources={"language": lambda c, seed: made}) is made
