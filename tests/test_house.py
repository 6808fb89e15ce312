"""The rules of the house hold everywhere, and each check is shown to fail on a planted violation."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from house import (
    FLOORS,
    Leaf,
    imports,
    machine_paths,
    misplaced_packages,
    too_long,
    undocumented,
    unread_leaves,
    upward_imports,
)

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ppo_lab"
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def tracked(*suffixes: str) -> list[Path]:
    """Files under version control or about to be; every file where there is no git (an unpacked archive)."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    found = [ROOT / line for line in listing.stdout.splitlines()] if listing.returncode == 0 else [*ROOT.rglob("*")]
    mine = [p for p in found if p.is_file() and ".venv" not in p.parts]
    return [p for p in mine if not suffixes or p.suffix in suffixes]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def text_of(module: str) -> dict[str, object]:
    path = MODULES[module]
    return {"source": path.read_text(encoding="utf-8"), "module": module, "is_package": path.name == "__init__.py"}


# --- the repository keeps the rules ----------------------------------------------------------------------------------


def test_there_is_something_to_walk() -> None:
    assert {"ppo_lab", "ppo_lab.cli", "ppo_lab.paths"} <= MODULES.keys() and len(tracked(".py")) > len(MODULES)


def test_imports_point_down() -> None:
    assert [v for m in MODULES for v in upward_imports(**text_of(m))] == []


def test_heavy_packages_stay_home() -> None:
    assert [v for m in MODULES for v in misplaced_packages(**text_of(m))] == []


def test_every_import_is_declared() -> None:
    """A package that a module imports stands in pyproject.toml, not only on the machine of who wrote it."""
    from ppo_lab.check import declared

    wanted = {r.name.lower() for group in declared(ROOT) for r in group}
    found = {item.name.split(".")[0] for m in MODULES for item in imports(**text_of(m))}
    owners = metadata.packages_distributions()
    foreign = found - sys.stdlib_module_names - {"ppo_lab"}
    assert {name for name in foreign if not wanted & {d.lower() for d in owners.get(name, [name])}} == set()


def test_files_and_functions_are_short() -> None:
    assert [v for p in tracked(".py") for v in too_long(p.read_text(encoding="utf-8"), relative(p))] == []


def test_public_names_are_documented() -> None:
    assert [*undocumented({m: p.read_text(encoding="utf-8") for m, p in MODULES.items()})] == []


def test_no_machine_paths() -> None:
    kinds = (".py", ".md", ".toml", ".yml", ".yaml", ".txt", ".ipynb", ".json", ".jsonl", ".csv", ".html", ".svg", "")
    assert [v for p in tracked(*kinds) for v in machine_paths(p.read_text(encoding="utf-8"), relative(p))] == []


def config_leaves() -> list[Leaf]:
    """Every leaf of every config class, from the classes themselves."""
    from ppo_lab.config import Config
    from ppo_lab.config.base import config_class

    def below(cls: type[Config]) -> list[type[Config]]:
        return [cls, *(c for sub in cls.__subclasses__() if sub.__module__.startswith("ppo_lab.") for c in below(sub))]

    classes = below(Config)
    fields = [(cls, name, config_class(f.annotation)) for cls in classes for name, f in cls.model_fields.items()
              if name in cls.__annotations__]  # an inherited one counts where it was written
    sections = {cls: frozenset(name for _, name, inner in fields if inner is cls) for cls in classes}
    return [Leaf(cls.__name__, name, sections[cls]) for cls, name, inner in fields if inner is None]


def test_every_setting_is_read() -> None:
    sources = {m: p.read_text(encoding="utf-8") for m, p in MODULES.items()}
    configs = [text for m, text in sources.items() if m.startswith("ppo_lab.config")]
    others = [text for m, text in sources.items() if not m.startswith("ppo_lab.config")]
    leaves = config_leaves()
    assert len(leaves) > 50
    assert [*unread_leaves(leaves, configs, others)] == []


def test_importing_the_package_is_light() -> None:
    heavy = {"transformers", "gymnasium", "deepspeed", "matplotlib", "accelerate"}
    code = "import sys, ppo_lab; print(*sorted(name for name in sys.modules if '.' not in name))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "ppo_lab" in done.stdout.split() and not heavy & {*done.stdout.split()}


# --- and each check can fail -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "source", "words"),
    [
        ("ppo_lab.core.kl", "from ppo_lab.records import StepBatch", "above"),
        ("ppo_lab.core.kl", "import ppo_lab.update", "above"),
        ("ppo_lab.core.kl", "from ..rlhf import Run", "above"),
        ("ppo_lab.update", "def f():\n    from ppo_lab import rlhf", "above"),
        ("ppo_lab.learners.zero", "if TYPE_CHECKING:\n    import ppo_lab.rlhf", "above"),
        ("ppo_lab.control.train", "from ppo_lab.rlhf.models import Critic", "neighbour"),
        ("ppo_lab.diagnose.plots", "from ppo_lab.update import ppo_update", "metrics only"),
        ("ppo_lab.attic", "import torch", "on no floor"),
        ("ppo_lab.rlhf.train", "from ppo_lab.attic import x", "on no floor"),
        ("ppo_lab", "from ppo_lab.core import kl", "above"),
    ],
)
def test_planted_upward_import(module: str, source: str, words: str) -> None:
    (violation,) = upward_imports(source, module)
    assert words in violation and violation.startswith(module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("ppo_lab.core.kl", "from ppo_lab.core.masking import select\nfrom .masking import select\nimport torch"),
        ("ppo_lab.rlhf.train", "from ppo_lab.update import ppo_update\nfrom ppo_lab.rlhf import models"),
        ("ppo_lab.diagnose.plots", "from ppo_lab.diagnose import rules\nfrom ppo_lab.metrics import REGISTRY"),
        ("ppo_lab.cli", "from ppo_lab import __version__, check"),
    ],
)
def test_downward_imports_pass(module: str, source: str) -> None:
    assert [*upward_imports(source, module)] == [] and [*misplaced_packages(source, module)] == []


def test_relative_imports_are_resolved() -> None:
    source = "from . import a\nfrom .b import c\nfrom ..d import e"
    inside = [i.name for i in imports(source, "ppo_lab.x", is_package=True)]
    assert inside == ["ppo_lab.x.a", "ppo_lab.x.b.c", "ppo_lab.d.e"]
    assert [i.name for i in imports(source, "ppo_lab.x.y")] == inside


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("ppo_lab.learners.plain", "def f():\n    import deepspeed.ops"),
        ("ppo_lab.rlhf.models", "from transformers import GPT2Config"),
        ("ppo_lab.rlhf.models", "class A:\n    import transformers"),
        ("ppo_lab.rlhf.models", "try:\n    import transformers\nexcept ImportError:\n    pass"),
        ("ppo_lab.core.kl", "import numpy as np"),
    ],
)
def test_planted_heavy_import(module: str, source: str) -> None:
    assert len([*misplaced_packages(source, module)]) == 1


def test_heavy_imports_at_home_pass() -> None:
    typed = "if TYPE_CHECKING:\n    from transformers import PreTrainedModel\ndef f():\n    import transformers"
    assert [*misplaced_packages(typed, "ppo_lab.rlhf.models")] == []
    assert [*misplaced_packages("import deepspeed", "ppo_lab.learners.zero.engine")] == []


def test_planted_long_code() -> None:
    body = "\n".join(f"    x = {i}" for i in range(40))
    assert "has 41 lines, at most 40" in "".join(too_long(f"def f():\n{body}\n", "a.py"))
    assert [*too_long(f"def f():\n{body[: -len('    x = 39')]}", "a.py")] == []
    documented = f'def f():\n    """One.\n\n    Two.\n    """\n{body[: -len("    x = 39")]}'
    assert [*too_long(documented, "a.py")] == []
    assert [*too_long(f"def f():\n{body}\n", "ppo_lab/rlhf/train.py")] == []
    assert "has 81 lines, at most 80" in "".join(too_long(f"def f():\n{body}\n{body}\n", "ppo_lab/rlhf/train.py"))
    assert "has 301 lines, at most 300" in "".join(too_long("x = 1\n" * 301, "a.py"))


def test_planted_missing_docstrings() -> None:
    base = '"""M."""\nclass Base:\n    """B."""\n    def run(self):\n        """Run."""\n'
    child = '"""M."""\nclass Child(Base):\n    """C."""\n    def run(self): ...\n    def walk(self): ...'
    private = "\n    def _do(self): ...\ndef _helper(): ..."
    assert [*undocumented({"a": base, "b": child + private})] == ["b:5 walk has no docstring"]
    assert [*undocumented({"a": "def f(): ...\nclass C: ..."})] == [
        "a has no docstring",
        "a:1 f has no docstring",
        "a:2 class C has no docstring",
    ]


def test_planted_machine_paths() -> None:
    bad = ["@home/ann/x", "open('@tmp/run')", "file://@Users/bo", "C:\\" + "Users\\bo", "=@root/x", "cd @work/a"]
    for text in (template.replace("@", "/") for template in bad):
        assert [*machine_paths(f"first line\n{text}", "f")][0].startswith("f:2 names "), text
    for text in ["runs/tmp/x", "https://a.org/home/x", "~/work/x", "#!/usr/bin/env", "f'{base}/tmp/x'", "a /home b"]:
        assert [*machine_paths(text, "f")] == [], text


CONFIG = """
class PPOConfig:
    @property
    def band(self): return self.clip
class RunConfig:
    @property
    def rows(self): return self.sampling.prompts
"""
READS = "def f(config, ppo: PPOConfig):\n    return config.steps, ppo.band, config.rows, config.ppo.lam, ppo.gamma"


@pytest.mark.parametrize(
    ("leaf", "is_read"),
    [
        (Leaf("PPOConfig", "lam", frozenset({"ppo"})), True),
        (Leaf("PPOConfig", "gamma", frozenset({"ppo"})), True),
        (Leaf("PPOConfig", "clip", frozenset({"ppo"})), True),  # through a property
        (Leaf("SamplingConfig", "prompts", frozenset({"sampling"})), True),  # through a property of the run
        (Leaf("RunConfig", "steps", frozenset()), True),
        (Leaf("PPOConfig", "epochs", frozenset({"ppo"})), False),
        (Leaf("SamplingConfig", "samples", frozenset({"sampling"})), False),
        (Leaf("CorpusConfig", "lam", frozenset({"corpus"})), False),  # another section's field of that name
        (Leaf("RunConfig", "seed", frozenset()), False),
    ],
)
def test_unread_settings_are_found(leaf: Leaf, is_read: bool) -> None:
    found = [*unread_leaves([leaf], [CONFIG], [READS])]
    assert found == ([] if is_read else [f"{leaf.owner}.{leaf.name} is read nowhere; use it or remove it"])
    assert [*unread_leaves([leaf], [CONFIG], [])] != []


def test_floors_name_each_part_once() -> None:
    names = [name for names in FLOORS for name in names]
    assert len(names) == len({*names})
