"""Is this machine ready? One line each: ``[OK]``, ``[FAIL]`` with the fix, or ``[NOTE]`` for what is only good to know.

Nothing heavier than torch is imported: packages are looked up by their metadata, so the whole check takes two seconds.
Each probe is a function of plain values, which is how the tests plant failures.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from ppo_lab.paths import PACKAGE

OLDEST_PYTHON = (3, 11)
DISK_GB, MEMORY_GB = 2.0, 1.5  # the demo and the tests fit in these
SMOLLM2_GB = 8.0  # the real language model does not
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
# where the package's name does not tell
MODULE_OF = {"pyyaml": "yaml", "ipython": "IPython", "pytest-xdist": "xdist", "types-pyyaml": ""}


@dataclass(frozen=True, slots=True)
class Item:
    """One line of the report. ``status`` is OK, FAIL (exit code 1) or NOTE (exit code untouched)."""

    status: str
    name: str
    detail: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{f'[{self.status}]':<7}{self.name:<12} {self.detail}" + (f"; fix: {self.fix}" if self.fix else "")


def python_version(version: tuple[int, ...] = sys.version_info[:3]) -> Item:
    """Python 3.11 or newer."""
    text = ".".join(map(str, version))
    if version[:2] >= OLDEST_PYTHON:
        return Item("OK", "python", f"{text} at {sys.prefix}")
    return Item("FAIL", "python", f"{text} is older than 3.11", "make setup PYTHON=python3.11")


def declared(checkout: Path = PACKAGE.parent) -> tuple[list[Requirement], list[Requirement]]:
    """Packages that ppo_lab needs here, and those of its extras, from the checkout or else the installed metadata."""
    toml = checkout / "pyproject.toml"
    if toml.is_file():
        project = tomllib.loads(toml.read_text(encoding="utf-8"))["project"]
        extras = [name for group in project["optional-dependencies"].values() for name in group]
        needed, optional = [Requirement(r) for r in project["dependencies"]], [Requirement(r) for r in extras]
    else:
        every = [Requirement(r) for r in metadata.requires("ppo_lab") or ()]
        needed = [r for r in every if "extra" not in str(r.marker)]
        optional = [r for r in every if "extra" in str(r.marker)]
    names = [*metadata.metadata("ppo_lab").get_all("Provides-Extra", [])] if not toml.is_file() else []

    def wanted(r: Requirement) -> bool:
        return r.marker is None or any(r.marker.evaluate({"extra": extra}) for extra in ["", *names])

    return [r for r in needed if wanted(r)], [r for r in optional if wanted(r) and r.name != "ppo_lab"]


def pins(checkout: Path = PACKAGE.parent) -> dict[str, str]:
    """Exact versions of ``requirements.txt``, by lower-case name; empty outside a checkout."""
    path = checkout / "requirements.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    exact = [Requirement(line) for line in lines if "==" in line and not line.startswith("#")]
    return {r.name.lower(): next(iter(r.specifier)).version for r in exact}


def installed_version(name: str) -> str | None:
    """The version found, without importing the package."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def is_importable(name: str) -> bool:
    """Whether the module of that package can be found (it is not loaded)."""
    module = MODULE_OF.get(name.lower(), name.replace("-", "_"))
    return not module or importlib.util.find_spec(module) is not None


def packages(
    needed: Iterable[Requirement],
    pinned: dict[str, str],
    *,
    optional: bool = False,
    version_of: Callable[[str], str | None] = installed_version,
    importable: Callable[[str], bool] = is_importable,
) -> Iterator[Item]:
    """One line for all that are right, and one each for what is missing, too old, or not the tested version."""
    good, bad = 0, "NOTE" if optional else "FAIL"
    for need in needed:
        version, pin = version_of(need.name), pinned.get(need.name.lower())
        fix = f'pip install "{need.name}=={pin}"' if pin else f'pip install "{need.name}{need.specifier}"'
        if version is None:
            yield Item(bad, need.name, "not installed" + (" (optional)" if optional else ""), fix)
        elif not need.specifier.contains(version, prereleases=True):
            yield Item(bad, need.name, f"{version} does not satisfy {need.specifier}", fix)
        elif not importable(need.name):
            yield Item(bad, need.name, f"{version} is installed, but its module is missing", f"{fix} --force-reinstall")
        elif pin and version.partition("+")[0] != pin:
            yield Item("NOTE", need.name, f"{version}; the course was tested with {pin}", fix)
        else:
            good += 1
    what = "of the extras" if optional else "needed"
    yield Item("OK", "packages", f"{good} {what} are as {'pinned' if pinned else 'required'}")


def torch_works() -> Iterator[Item]:
    """A gradient known by hand, the number of threads, and the device."""
    fix = f"pip install --force-reinstall torch=={pins().get('torch', '2.13.0')}"
    try:
        import torch

        x = torch.tensor(3.0, requires_grad=True)
        slope = torch.autograd.grad(x * x, x)[0].item()
    except Exception as error:  # a broken build raises anything from OSError to RuntimeError
        yield Item("FAIL", "torch", f"does not work: {error}", fix)
        return
    if slope != 6.0:
        yield Item("FAIL", "torch", f"says that the slope of x² at 3 is {slope}, not 6", fix)
    else:
        setting = os.environ.get("OMP_NUM_THREADS", "not set")
        yield Item("OK", "torch", f"{torch.__version__}, {torch.get_num_threads()} threads (OMP_NUM_THREADS {setting})")
    yield device(torch.cuda.get_device_name(0) if torch.cuda.is_available() else None, os.cpu_count() or 1)


def device(gpu: str | None, cores: int) -> Item:
    """What will compute; a CPU is enough for everything in the course."""
    return Item("OK", "device", f"GPU {gpu}" if gpu else f"CPU, {cores} cores; nothing in the course needs a GPU")


def disk(free_gb: float) -> Item:
    """Room for runs and fetched models."""
    if free_gb >= DISK_GB:
        return Item("OK", "disk", f"{free_gb:.0f} GB free")
    return Item("FAIL", "disk", f"{free_gb:.1f} GB free, {DISK_GB:g} GB needed", "delete old folders under runs/")


def memory(available_gb: float) -> Item:
    """Room for four small models; the real language model wants more."""
    if available_gb < MEMORY_GB:
        fix = "close other programs or notebooks"
        return Item("FAIL", "memory", f"{available_gb:.1f} GB available, {MEMORY_GB:g} GB needed", fix)
    if available_gb < SMOLLM2_GB:
        most = f"{available_gb:.1f} GB available, enough for all but rlhf/smollm2 ({SMOLLM2_GB:g} GB)"
        return Item("NOTE", "memory", most)
    return Item("OK", "memory", f"{available_gb:.0f} GB available")


def writable(folder: Path) -> Item:
    """Checkpoints are written under a temporary name and then renamed: try just that."""
    home = folder if folder.is_dir() else folder.parent
    try:
        with tempfile.TemporaryDirectory(dir=home, prefix=".ppo-lab-check-") as scratch:
            (Path(scratch) / "new").write_text("ready", encoding="utf-8")
            os.replace(Path(scratch) / "new", Path(scratch) / "done")
    except OSError as error:
        return Item("FAIL", "run folder", f"cannot write in {home}: {error.strerror}", "use --folder DIR")
    return Item("OK", "run folder", f"{folder} can be written")


def browser(path: str | None) -> Item:
    """Chromium, for the tests that move sliders in a real page."""
    if path:
        return Item("OK", "chromium", path)
    fix = "sudo apt-get install -y chromium, or brew install --cask chromium"
    return Item("NOTE", "chromium", "not found; only the browser tests need it", fix)


def fetched(names: Iterable[str], root: Path) -> Item:
    """Models and ratings kept by ``ppo-lab fetch``; presence only, their checksums are verified on use."""
    have = {name: (root / name / "manifest.json").is_file() for name in names}
    missing = [name for name, here in have.items() if not here]
    if not missing:
        return Item("OK", "fetched", f"{', '.join(have)} in {root}")
    present = ", ".join(name for name in have if name not in missing) or "nothing yet"
    detail = f"{present}; only rlhf/smollm2 needs {', '.join(missing)}"
    return Item("NOTE", "fetched", detail, f"ppo-lab fetch {' '.join(missing)}")


def library() -> Item:
    """Whether ppo_lab itself can be loaded here, and what `ppo_lab.rlhf.fetch` has in its cache."""
    try:
        from ppo_lab.rlhf.fetch import cache_root, names
    except ImportError as error:
        return Item("FAIL", "ppo_lab", f"cannot be imported: {error}", "pip install -r requirements.txt")
    return fetched(names(), cache_root())


def checks(folder: Path = Path("runs")) -> Iterator[Item]:
    """Every line of ``ppo-lab check`` in order, each as soon as it is known."""
    yield python_version()
    needed, optional = declared()
    pinned = pins()
    yield from packages(needed, pinned)
    course = [r for r in optional if not pinned or r.name.lower() in pinned]  # the extra `hub` is no part of it
    yield from packages(course, pinned, optional=True)
    if importlib.util.find_spec("torch") is not None:  # its absence has been reported above
        yield from torch_works()
    yield disk(shutil.disk_usage(Path.cwd()).free / 1e9)
    if importlib.util.find_spec("psutil") is not None:
        import psutil

        yield memory(psutil.virtual_memory().available / 1e9)
    yield writable(folder.resolve())
    yield library()
    yield browser(next(filter(None, map(shutil.which, BROWSERS)), None))


def report(items: Iterable[Item], say: Callable[[str], object] = print) -> int:
    """Say every item; the exit code is 1 where one failed."""
    failed = 0
    for item in items:
        say(str(item))
        failed += item.status == "FAIL"
    if failed:
        say(f"{failed} to fix before the course runs")
    return int(failed > 0)
