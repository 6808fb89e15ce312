"""The documentation is what the registries say, names nothing that is not there, and its snippets run."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ppo_lab.config import RLHFConfig, load_config
from ppo_lab.course.catalogue import NOTEBOOKS, PATHS
from ppo_lab.course.docs import BLOCKS, BY_HAND, MARKED, PAGES, blocks, breaks, filled, kl, settings, stale, write
from ppo_lab.course.docs.effects import EFFECTS, MEANINGS
from ppo_lab.course.docs.pages import TOPICS
from ppo_lab.metrics import GROUPS, PEERS, REGISTRY

ROOT = Path(__file__).resolve().parent.parent
PROSE = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "instructor" / "README.md"]
READMES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "README.zh.md")}


# --- up to date ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation in a folder where it may be spoilt."""
    folder = tmp_path_factory.mktemp("copy")
    for name in [*PAGES, *BY_HAND]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    if (ROOT / "notebooks").is_dir():
        shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    return folder


def test_documentation_is_up_to_date() -> None:
    assert stale(ROOT) == [], "run make docs"


def test_a_stale_page_is_found_and_mended(copy: Path) -> None:
    page, readme = copy / "docs" / "glossary.md", copy / "README.md"
    before = page.read_text(encoding="utf-8"), readme.read_text(encoding="utf-8")
    page.write_text(before[0].replace("| discount |", "| discounting |"), encoding="utf-8")
    readme.write_text(before[1].replace("| *scale* |", "| *scaling* |"), encoding="utf-8")
    (copy / "docs" / "map.md").unlink()
    assert {*stale(copy)} == {"docs/glossary.md", "README.md", "docs/map.md"} == {*write(copy)}
    assert (page.read_text(encoding="utf-8"), readme.read_text(encoding="utf-8")) == before and stale(copy) == []


def test_every_block_has_its_place() -> None:
    names = [found[2] for name in BY_HAND for found in MARKED.finditer((ROOT / name).read_text(encoding="utf-8"))]
    assert sorted(names) == sorted(BLOCKS)
    with pytest.raises(ValueError, match="made must be one of paths"):
        filled("<!-- made: pahts -->\n<!-- end -->")


# --- nothing that is not there ---------------------------------------------------------------------------------------


def commands() -> set[str]:
    from ppo_lab.cli import app

    return {command.callback.__name__ for command in app.registered_commands if command.callback}


def targets() -> set[str]:
    return {*re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)}


def anchors(text: str) -> set[str]:
    """What GitHub makes of headings."""
    heads = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def promises(text: str, place: Path) -> Iterator[str]:
    """What a page offers and the repository does not have: commands to type, targets of make, links, notebooks."""
    yield from (f"ppo-lab {word}" for word in re.findall(r"ppo-lab ([a-z][\w-]*)", text) if word not in commands())
    typed = re.findall(r"(?:`|^|&& |wheels )make ([a-z]+)", text, re.M)
    yield from (f"make {word}" for word in typed if word not in targets())
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        goal = place.parent / path if path else place
        if "://" in link:
            continue
        if not goal.exists():
            yield f"link {link}"
        elif anchor and anchor not in anchors(goal.read_text(encoding="utf-8")):
            yield f"anchor {link}"
    for line in text.splitlines():
        for name in re.findall(r"\b\d\d_[a-z]\w+", line):
            if name in NOTEBOOKS and not NOTEBOOKS[name].written and "planned" not in line:
                yield f"{name} is planned, and not marked so"


@pytest.mark.parametrize("path", PROSE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nothing_is_promised_that_is_not_there(path: Path) -> None:
    assert [*promises(path.read_text(encoding="utf-8"), path)] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("type `ppo-lab teleport RUN`", "ppo-lab teleport"),
        ("```bash\nppo-lab fly\n```", "ppo-lab fly"),
        ("type `make money`", "make money"),
        ("```bash\nmake haste\n```", "make haste"),
        ("cd ppo_lab && make merry", "make merry"),
        ("[x](nowhere.md)", "link nowhere.md"),
        ("[x](notebooks/99_none.ipynb)", "link notebooks/99_none.ipynb"),
        ("[x](README.md#no-such-part)", "anchor README.md#no-such-part"),
    ],
)
def test_planted_promises_are_found(text: str, message: str) -> None:
    assert [*promises(text, ROOT / "planted.md")] == [message]


def test_a_planned_notebook_must_be_marked() -> None:
    planned = [name for name, book in NOTEBOOKS.items() if not book.written]
    for name in planned[-1:]:
        assert [*promises(f"see {name}", ROOT / "x.md")] and not [*promises(f"see {name} (planned)", ROOT / "x.md")]


def test_true_promises_pass() -> None:
    text = "[x](README.md#test) [y](https://example.org/a)\n`make lab`, `ppo-lab check`, make it so"
    assert [*promises(text, ROOT / "planted.md")] == []


# --- the two READMEs -------------------------------------------------------------------------------------------------


def test_both_readmes_have_the_same_parts() -> None:
    english, chinese = READMES.values()
    for pattern in (r"^```\w*\n.*?^```$", r"^#+ ", r"^\|---.*", r"\]\((?:docs|README)[^)]*\)"):
        found = [re.findall(pattern, text, re.M | re.S if "```" in pattern else re.M) for text in (english, chinese)]
        if "README" in pattern:
            found = [sorted({link.replace("README.zh", "README") for link in links}) for links in found]
        assert found[0] == found[1] != []


def test_the_picture_is_small() -> None:
    assert (ROOT / "docs" / "dashboard.png").stat().st_size < 400_000


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what the section "Your own model, reward, corpus" needs, files as the README has them."""
    from ppo_lab.rlhf.corpus import grammar
    from ppo_lab.rlhf.models.build import SHIPPED

    section = READMES["README.md"].split("## Your own model, reward, corpus\n")[1].split("\n## ")[0]
    reward, config, code = re.findall(r"```(?:python|yaml)\n(.+?)```", section, re.S)
    (tmp_path / "my_reward.py").write_text(reward, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(config, encoding="utf-8")
    (tmp_path / "code.py").write_text(code, encoding="utf-8")
    rng = random.Random(0)
    (tmp_path / "my_texts.txt").write_text("\n".join(grammar.write(rng) for _ in range(300)), encoding="utf-8")
    shutil.copytree(SHIPPED / "sft", tmp_path / "my_model")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


SMALL = ["steps=1", "sft.steps=2", "corpus.held_out=16", "reward.references=16", "sampling.prompts=16",
         "evaluation.prompts=8", "ppo.epochs=1", "ppo.minibatches=2"]  # fmt: skip


def test_a_run_with_your_own_model_reward_and_corpus(desk: Path) -> None:
    from ppo_lab.rlhf import Run

    config = load_config("mine.yaml", SMALL)
    assert config.policy.path == "my_model" and config.reward.sources[0].path == "my_reward.py:eight_words"
    (step,) = Run(config, folder=desk / "runs" / "mine")
    assert step.step == 1 and step.raw_score_mean < 0 and (desk / "runs" / "mine" / "metrics.jsonl").is_file()


def test_a_run_from_python(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The snippet with sizes for a test."""
    text = (desk / "code.py").read_text(encoding="utf-8")
    assert '["steps=2"]' in text
    exec(text.replace('["steps=2"]', repr([*SMALL, "steps=2", "corpus.size=400"])), {})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["1", "2"] and lines[2].startswith("['")


# --- what the pages are made of --------------------------------------------------------------------------------------


def test_every_number_setting_says_what_happens_as_it_rises() -> None:
    fields = dict(RLHFConfig.leaves())
    silent = {n for n, f in fields.items() if settings.meaning(n, f.description or "")[1] == "–"}
    numbers = {n for n, f in fields.items() if re.search("integer|number", settings.kind_of(f))}
    assert silent & numbers == set() and len(numbers) > 50
    spoken = {n for n, f in fields.items() if settings.EFFECT.search(f.description or "")}
    assert EFFECTS.keys() <= fields.keys() - spoken and MEANINGS.keys() <= fields.keys()


def test_settings_are_described_by_type_and_default() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    for line in (
        "| `kl.beta` | `0.05` | number ≥ 0 |",
        "| `ppo.clip` | `0.2` | number > 0 or [number > 0, number > 0] |",
        "| `ppo.dual_clip` | `null` | number > 1 or null |",
        "| `sampling.stop` | `[]` | list of text |",
    ):
        assert line in text, line
    assert all(f"| `{name}` |" in text for name, _ in RLHFConfig.leaves())


def test_every_metric_is_on_the_cheat_sheet() -> None:
    text = (ROOT / "docs" / "cheat_sheet.md").read_text(encoding="utf-8")
    names = [alias for e in REGISTRY.values() for alias in e.aliases.values() if alias]
    assert all(f"`{name}`" in text for name in [*REGISTRY, *names]) and len(PEERS) == 5


def test_symptoms_are_sentences_of_the_registry() -> None:
    every = [item for key in GROUPS for item in breaks.symptoms(key)]
    with_light = {entry.name for entry, *_ in every}
    first = {name for _, names in breaks.FIRST for name in names}
    assert first <= with_light <= REGISTRY.keys()
    assert {name for name, e in REGISTRY.items() if e.healthy} - with_light <= {"eval_ref_kl_sum"}
    reads = " ".join(e.reads for e in REGISTRY.values())
    assert all(start in reads for start in (*breaks.NO_SYMPTOM, *breaks.NO_REMEDY)), "a rule for nothing"
    assert all(symptom in reads and len(symptom) < 120 for _, symptom, _ in every)


def test_kl_estimators_do_what_the_page_says() -> None:
    """Expectations over all tokens: exact up to rounding."""
    truth, forward = kl.gradient_of_kl(), kl.gradient_of_kl(forward=True)
    assert kl.in_loss("k1").norm() < 1e-15
    for push, goal in (
        (kl.in_reward("k1"), truth),
        (kl.in_loss("k2"), truth),
        (kl.in_loss("k3"), forward),
        (kl.in_reward("k3"), truth - forward),
    ):
        assert (push - goal).abs().max() < 1e-12
    wrong_way = kl.cosine(kl.in_reward("k3"), truth)
    assert wrong_way is not None and wrong_way < -0.3
    assert kl.cosine(kl.in_loss("k1"), truth) is None


def test_weeks_and_paths_cover_the_course() -> None:
    numbers = [book.number for book in NOTEBOOKS.values()]
    assert sorted(n for week in blocks.WEEKS.values() for n in week) == numbers and len(blocks.WEEKS) == 6
    assert blocks.FOR_WHOM.keys() == PATHS.keys()
    assert {*TOPICS} == {row[0] for book in NOTEBOOKS.values() for row in book.rows}


def test_every_mutant_is_on_the_kill_matrix_and_caught() -> None:
    from ppo_lab.course.exercises import EXERCISES

    text = (ROOT / "docs" / "kill_matrix.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!wrong answer)[^|]+\|.*$", text, re.M)
    assert len(rows) == sum(len(e.mutants) for e in EXERCISES.values()) and all("✗" in row for row in rows)


def test_claims_come_from_stored_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: one notebook, said to be written, that stores one claim."""
    import json
    from dataclasses import replace

    from ppo_lab.course.claims import MIME
    from ppo_lab.course.docs import pages

    assert "planned" in pages.claims(tmp_path)
    book = replace(NOTEBOOKS["05_gae"], written=True)
    monkeypatch.setitem(NOTEBOOKS, "05_gae", book)
    entry = {"id": "A8.bias", "text": "|x| grows", "measured": "0.2", "verdict": "held here", "interval": "0 to 1"}
    cell = {"cell_type": "code", "outputs": [{"output_type": "display_data", "data": {MIME: entry}}]}
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "05_gae.ipynb").write_text(json.dumps({"cells": [cell]}), encoding="utf-8")
    page = pages.claims(tmp_path)
    assert "## [05 Generalised advantages](../notebooks/05_gae.ipynb)" in page
    assert "| `A8.bias` | \\|x\\| grows | 0.2 | 0 to 1 | held here |" in page
    assert "[05](notebooks/05_gae.ipynb)" in blocks.paths() and "[05](../notebooks/05_gae.ipynb)" in blocks.syllabus()


def test_make_docs_says_what_it_did(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ppo_lab.course.docs"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "the documentation is up to date\n"


def test_tables_of_speed_are_those_of_the_results() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "benchmarks" / "table.py"), "--check"], check=False)
    assert done.returncode == 0, "python benchmarks/table.py writes them anew"
