"""`ppo-lab check` finds what is wrong: every failure is planted."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from packaging.requirements import Requirement

from ppo_lab import check
from ppo_lab.check import Item


def one(*items: Item) -> Item:
    (item,) = items
    return item


@pytest.mark.parametrize(("version", "status"), [((3, 10, 9), "FAIL"), ((3, 11, 0), "OK"), ((3, 14, 1), "OK")])
def test_python(version: tuple[int, ...], status: str) -> None:
    assert check.python_version(version).status == status


NEEDED = [Requirement("alpha>=2.0"), Requirement("beta>=1.0")]
PINS = {"alpha": "2.1", "beta": "1.5"}


def look(versions: dict[str, str], *, optional: bool = False, gone: str = "") -> list[Item]:
    probe = {"version_of": versions.get, "importable": lambda name: name != gone, "optional": optional}
    return [*check.packages(NEEDED, PINS, **probe)]  # type: ignore[arg-type]


def test_all_packages_right() -> None:
    assert [str(i) for i in look({"alpha": "2.1+cpu", "beta": "1.5"})] == ["[OK]   packages     2 needed are as pinned"]


@pytest.mark.parametrize(
    ("versions", "gone", "status", "words"),
    [
        ({"beta": "1.5"}, "", "FAIL", 'not installed; fix: pip install "alpha==2.1"'),
        ({"alpha": "1.9", "beta": "1.5"}, "", "FAIL", "1.9 does not satisfy >=2.0"),
        ({"alpha": "2.1", "beta": "1.5"}, "alpha", "FAIL", "its module is missing"),
        ({"alpha": "3.0", "beta": "1.5"}, "", "NOTE", "3.0; the course was tested with 2.1"),
    ],
)
def test_planted_package(versions: dict[str, str], gone: str, status: str, words: str) -> None:
    bad, summary = look(versions, gone=gone)
    assert bad.status == status and bad.name == "alpha" and words in str(bad) and summary.detail.startswith("1 needed")


def test_a_missing_extra_fails_nothing() -> None:
    assert [i.status for i in look({}, optional=True)] == ["NOTE", "NOTE", "OK"]


def test_declared_packages_come_from_the_checkout_or_the_metadata(tmp_path: Path, monkeypatch) -> None:
    needed, optional = check.declared()
    assert "torch" in {r.name for r in needed} and "jupyterlab" in {r.name for r in optional}
    said = ["torch>=2", "other; sys_platform == 'nowhere'", "gguf>=1; extra == 'models'", "ppo_lab[x]; extra == 'all'"]
    monkeypatch.setattr(check.metadata, "requires", lambda name: said)
    extras = SimpleNamespace(get_all=lambda key, default: ["models", "all"])
    monkeypatch.setattr(check.metadata, "metadata", lambda name: extras)
    needed, optional = check.declared(tmp_path)
    assert [r.name for r in needed] == ["torch"] and [r.name for r in optional] == ["gguf"]
    assert check.pins(tmp_path) == {}


def test_pins_are_those_of_the_file() -> None:
    assert check.pins()["torch"] == "2.13.0" and check.pins()["pyyaml"].startswith("6.")


def test_the_import_check_loads_nothing() -> None:
    assert check.is_importable("PyYAML") and check.is_importable("types-PyYAML") and not check.is_importable("no-such")
    assert check.installed_version("no-such") is None


def test_torch_here() -> None:
    works, device = check.torch_works()
    assert works.status == "OK" and "threads" in works.detail and device.name == "device"


def test_planted_broken_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = ModuleType("torch")
    monkeypatch.setitem(sys.modules, "torch", wrong)
    assert "does not work" in one(*check.torch_works()).detail
    slope = SimpleNamespace(item=lambda: 5.0)
    wrong.tensor = lambda *_, **__: 3.0  # type: ignore[attr-defined]
    wrong.autograd = SimpleNamespace(grad=lambda *_: [slope])  # type: ignore[attr-defined]
    wrong.cuda = SimpleNamespace(is_available=lambda: True, get_device_name=lambda _: "X1")  # type: ignore[attr-defined]
    bad, device = check.torch_works()
    assert bad.status == "FAIL" and "5.0, not 6" in bad.detail and device.detail == "GPU X1"


@pytest.mark.parametrize(("gigabytes", "disk", "memory"), [(0.5, "FAIL", "FAIL"), (3, "OK", "NOTE"), (50, "OK", "OK")])
def test_room(gigabytes: float, disk: str, memory: str) -> None:
    assert check.disk(gigabytes).status == disk and check.memory(gigabytes).status == memory


def test_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check.writable(tmp_path / "runs").status == "OK" and not [*tmp_path.iterdir()]
    assert check.writable(tmp_path / "no" / "such" / "runs").status == "FAIL"

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(check.os, "replace", refuse)
    bad = check.writable(tmp_path)
    assert bad.status == "FAIL" and "Permission denied" in bad.detail and "--folder" in bad.fix


def test_fetched(tmp_path: Path) -> None:
    assert "ppo-lab fetch a b" in str(check.fetched(["a", "b"], tmp_path))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "manifest.json").touch()
    half = check.fetched(["a", "b"], tmp_path)
    assert half.status == "NOTE" and half.detail.startswith("a;") and half.fix == "ppo-lab fetch b"
    assert check.fetched(["a"], tmp_path).status == "OK"


def test_a_package_that_cannot_be_imported_is_said_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ppo_lab.rlhf.fetch", None)
    bad = check.library()
    assert bad.status == "FAIL" and "cannot be imported" in bad.detail and "requirements.txt" in bad.fix


def test_browser() -> None:
    assert check.browser("bin/chromium").status == "OK" and "apt-get install" in check.browser(None).fix


def test_report_fails_as_one_item_fails() -> None:
    said: list[str] = []
    assert check.report([Item("OK", "a", "fine"), Item("NOTE", "b", "so so", "do")], said.append) == 0
    assert check.report([Item("FAIL", "c", "bad", "mend it")], said.append) == 1
    assert said == [
        "[OK]   a            fine",
        "[NOTE] b            so so; fix: do",
        "[FAIL] c            bad; fix: mend it",
        "1 to fix before the course runs",
    ]


def test_this_machine_passes() -> None:
    """Whoever runs the tests can run the course."""
    items = [*check.checks()]
    assert [str(i) for i in items if i.status == "FAIL"] == []
    assert {i.name for i in items} >= {"python", "packages", "torch", "device", "disk", "memory", "run folder"}
