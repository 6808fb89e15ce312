"""The files around the package agree with each other, and what they promise holds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def pinned() -> dict[str, Requirement]:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if line and not line.startswith("#")]
    assert len({r.name.lower() for r in found}) == len(found), "a package is pinned twice"
    return {r.name.lower(): r for r in found}


def declared() -> list[Requirement]:
    """Everything but the extra ``hub``, which only serves who is online and is no part of the course."""
    extras = PROJECT["optional-dependencies"]
    groups = [PROJECT["dependencies"], *(extras[name] for name in extras if name != "hub")]
    return [r for group in groups for r in map(Requirement, group) if r.name != PROJECT["name"]]


def disagreements(wanted: list[Requirement], pins: dict[str, Requirement]) -> list[str]:
    """Packages that requirements.txt lacks, does not pin to one version, or pins below the lower bound."""
    found = []
    for need in wanted:
        pin = pins.get(need.name.lower())
        exact = [s for s in pin.specifier if s.operator == "=="] if pin else []
        if pin is None or len(exact) != 1:
            found.append(f"{need.name} has no exact version in requirements.txt")
        elif not need.specifier.contains(exact[0].version):
            found.append(f"{need.name}: requirements.txt has {exact[0].version}, pyproject.toml wants {need.specifier}")
        elif str(pin.marker or "") != str(need.marker or ""):
            found.append(f"{need.name}: requirements.txt has the marker {pin.marker}, pyproject.toml {need.marker}")
    return found


def test_requirements_pin_what_pyproject_declares() -> None:
    assert disagreements(declared(), pinned()) == []


def test_every_pin_is_exact() -> None:
    assert [str(r) for r in pinned().values() if [s.operator for s in r.specifier] != ["=="]] == []


def test_torch_is_pinned_first() -> None:
    """Left to the resolver, another torch would come: several gigabytes of it."""
    assert next(iter(pinned())) == "torch"


def test_planted_disagreements_are_found() -> None:
    pins = {"a": Requirement("a==1.0"), "b": Requirement("b>=2"), "d": Requirement("d==1; sys_platform == 'linux'")}
    wanted = [Requirement(r) for r in ("a>=1.1", "b>=2", "c", "d>=1")]
    assert len(disagreements(wanted, pins)) == 4
    assert disagreements([Requirement("a>=0.9")], pins) == []


def test_conda_installs_the_same_versions() -> None:
    """environment.yml brings Python and leaves every version to requirements.txt."""
    conda = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    packages = {re.split(r"[<>=]", item)[0]: item for item in conda if isinstance(item, str)}
    (pip,) = [item["pip"] for item in conda if isinstance(item, dict)]
    assert pip == ["-r requirements.txt", "-e ."]
    assert packages.keys() == {"python", "pip"}
    assert SpecifierSet(PROJECT["requires-python"]).contains(packages["python"].partition("=")[2])


def test_python_versions_agree() -> None:
    from ppo_lab.check import OLDEST_PYTHON

    oldest = ".".join(map(str, OLDEST_PYTHON))
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert PROJECT["requires-python"] == f">={oldest}" and config["mypy"]["python_version"] == oldest
    assert config["ruff"]["target-version"] == "py" + oldest.replace(".", "")
    assert f"Python {oldest} or newer" in README


def test_licence() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.startswith("MIT License") and "2026 The ppo_lab authors" in text and PROJECT["license"] == "MIT"


# --- make ------------------------------------------------------------------------------------------------------------


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    clean["PATH"] = os.pathsep.join([str(folder / ".venv" / "bin"), clean["PATH"]])
    return subprocess.run(["make", *words], cwd=folder, env=clean, capture_output=True, text=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder that make believes was set up just now."""
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / ".ready").touch()
    plant(tmp_path, chromium="exit 0")  # or make would install it for us
    return tmp_path


def test_second_setup_does_nothing(checkout: Path) -> None:
    done = make(checkout, "setup")
    assert done.returncode == 0 and "pip" not in done.stdout + done.stderr


@pytest.mark.parametrize("changed", ["requirements.txt", "pyproject.toml"])
def test_setup_runs_again_after_a_change(checkout: Path, changed: str) -> None:
    later = (checkout / ".venv" / ".ready").stat().st_mtime + 10
    os.utime(checkout / changed, (later, later))
    done = make(checkout, "-n", "setup", "TORCH=cpu")
    assert "--extra-index-url https://download.pytorch.org/whl/cpu -r requirements.txt" in done.stdout


def test_setup_refuses_an_old_python(checkout: Path) -> None:
    (checkout / ".venv" / ".ready").unlink()
    old = checkout / "python3.9"
    old.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    old.chmod(0o755)
    done = make(checkout, "setup", f"PYTHON={old}")
    assert done.returncode != 0 and "older than Python 3.11" in done.stdout


def plant(checkout: Path, **tools: str) -> None:
    """Put shell scripts where make expects the tools of the virtual environment."""
    for name, script in tools.items():
        path = checkout / ".venv" / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)


@pytest.mark.parametrize("broken", ["ruff", "mypy", "python"])
def test_make_test_fails_as_a_part_fails(checkout: Path, broken: str) -> None:
    good = {"ruff": "exit 0", "mypy": "exit 0", "python": 'echo "1 passed in 0.1s: $*"'}
    plant(checkout, **good)
    done = make(checkout, "test")
    assert done.returncode == 0, done.stderr
    assert "1 passed" in done.stdout and "-m pytest" in done.stdout and done.stdout.count(" s, passed") == 3
    plant(checkout, **{broken: "exit 3"})
    failed = make(checkout, "test")
    assert failed.returncode != 0 and "FAILED" in failed.stdout
    assert failed.stdout.count(" s, passed") == 2, "the other parts run all the same"


def test_demo_starts_afresh_and_ends_in_a_report(checkout: Path) -> None:
    (checkout / "runs" / "demo").mkdir(parents=True)
    (checkout / "runs" / "demo" / "kept").touch()
    plant(checkout, **{"ppo-lab": 'test -d runs/demo && echo "left over"; echo "did $*"'})
    done = make(checkout, "demo")
    assert "left over" not in done.stdout
    (aside,) = (checkout / "runs").glob("demo_*")
    assert (aside / "kept").is_file() and f"Put aside: runs/{aside.name}" in done.stdout
    assert done.stdout.index("did train rlhf/demo --folder runs/demo") < done.stdout.index("did dashboard runs/demo")


def test_lab_stops_at_a_failed_check(checkout: Path) -> None:
    plant(checkout, **{"ppo-lab": 'echo "did $*"; test "$1" != check'})
    done = make(checkout, "lab")
    assert done.returncode != 0 and "did check" in done.stdout and "did train" not in done.stdout


def test_lab_shows_the_demo_until_there_are_notebooks(checkout: Path) -> None:
    plant(checkout, **{"ppo-lab": 'echo "did $*"'})
    assert "did train rlhf/demo" in make(checkout, "lab").stdout
    book(checkout)
    done = make(checkout, "lab")
    assert done.stdout.index("did check") < done.stdout.index("did lab\n") and "did train" not in done.stdout


def book(checkout: Path) -> None:
    """One notebook, so far as make can see."""
    (checkout / "notebooks").mkdir()
    (checkout / "notebooks" / "00_start_here.ipynb").touch()


def test_outputs_of_notebooks_are_a_part_of_the_tests_once_there_are_notebooks(checkout: Path) -> None:
    good = {"ruff": "exit 0", "mypy": "exit 0", "python": 'case "$*" in *nbval*) exit 3;; esac'}
    plant(checkout, **good)
    assert make(checkout, "test").returncode == 0
    book(checkout)
    failed = make(checkout, "test")
    assert failed.returncode != 0 and failed.stdout.count(" s, passed") == 3 and "== nbval: " in failed.stdout
    plant(checkout, python='echo "did $*"')
    assert make(checkout, "test").stdout.count(" s, passed") == 4


def test_outputs_are_compared_as_the_tests_of_the_comparison_do(checkout: Path) -> None:
    from test_notebooks import NBVAL

    plant(checkout, python='echo "did $*"')
    (line,) = re.findall(r"^did (.+)$", make(checkout, "nbval").stdout, re.M)
    words = line.split()
    assert words[:2] == ["-m", "pytest"] and words[-1] == "notebooks"
    assert {word.replace(f"{ROOT}/", "") for word in NBVAL} <= {*words} and "loadscope" in words
    assert "--nbval-lax" not in words


def test_notebooks_and_documentation_are_made_by_the_package(checkout: Path) -> None:
    plant(checkout, python='echo "did $*"')
    assert "did -m ppo_lab.course.build" in make(checkout, "notebooks").stdout
    assert "did -m ppo_lab.course.docs" in make(checkout, "docs").stdout


@pytest.mark.parametrize(
    ("user", "browser", "installs"), [("0", "", True), ("1000", "", False), ("0", "google-chrome", False)]
)
def test_chromium_is_installed_by_root_alone_and_once(checkout: Path, user: str, browser: str, installs: bool) -> None:
    """A machine with nothing on its path but these; where it cannot be had, one line says what to type."""
    (checkout / ".venv" / "bin" / "chromium").unlink()
    plant(checkout, id=f"echo {user}", **{"apt-get": 'echo "did $*" >> note'}, **({browser: ""} if browser else {}))
    environment = {"PATH": str(checkout / ".venv" / "bin")}
    command = [shutil.which("make") or "make", "chromium"]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    note = checkout / "note"
    did = note.read_text().splitlines() if note.exists() else []
    assert did == (["did update -qq", "did install -y -qq chromium"] if installs else [])
    assert ("sudo apt-get install -y chromium" in done.stdout) is (not installs and not browser)


def test_make_looks_for_the_browsers_that_the_tests_look_for() -> None:
    from ppo_lab.check import BROWSERS

    (line,) = re.findall(r"for name in (.+?); do command", (ROOT / "Makefile").read_text(encoding="utf-8"))
    assert tuple(line.split()) == BROWSERS


def test_soak_runs_marked_tests_and_scripts(checkout: Path) -> None:
    plant(checkout, python='echo "did $*"; case "$*" in *pytest*) exit 5;; *bad*) exit 1;; esac')
    (checkout / "benchmarks" / "soak").mkdir(parents=True)
    (checkout / "benchmarks" / "soak" / "long.py").touch()
    done = make(checkout, "soak")
    assert done.returncode == 0
    assert "did -m pytest -q -m soak" in done.stdout and "did benchmarks/soak/long.py" in done.stdout
    (checkout / "benchmarks" / "soak" / "bad.py").touch()
    assert make(checkout, "soak").returncode != 0


def test_continuous_integration_runs_the_command_of_the_readme() -> None:
    section = README.split("## Test\n")[1]
    (command,) = re.findall(r"```bash\n(.+)\n```", section)
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert f"exec {command}\n" in script and (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_readme_names_real_commands() -> None:
    from ppo_lab.cli import app

    known = {command.callback.__name__ for command in app.registered_commands if command.callback}
    assert {*re.findall(r"ppo-lab ([a-z]+)", README)} == known
    targets = {*re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)}
    assert {*re.findall(r"(?:`|^)make ([a-z]+)", README, re.M)} <= targets


# --- the wheel -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_wheel_ships_configs_and_finds_them_by_name(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("ppo_lab-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path / "site")
    shipped = {name.removeprefix("ppo_lab/") for name in names if name.startswith("ppo_lab/configs/")}
    assert shipped == {p.relative_to(ROOT).as_posix() for p in (ROOT / "configs").rglob("*") if p.is_file()}
    assert not [name for name in names if name.startswith("tests/") or name.endswith((".pyc", ".ipynb"))]
    code = "import ppo_lab.paths as p; print(p.find_config('rlhf/demo'))"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(tmp_path / "site" / "ppo_lab" / "configs" / "rlhf" / "demo.yaml")
