"""The first line of a notebook."""

from __future__ import annotations

import random
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from ppo_lab import course
from ppo_lab.course.session import MARKER, SESSION, here, problems


def test_one_line_when_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert course.start("04_clipping") is None
    assert capsys.readouterr().out == "04_clipping: ready (seed 0, float64, 1 thread)\n"
    assert torch.get_default_dtype() == torch.float64 and torch.get_num_threads() == 1 and SESSION.name == "04_clipping"


@pytest.mark.parametrize(
    ("name", "dtype"), [("00_start_here", "float32"), ("10_four_model_rlhf", "float32"), ("01_reinforce", "float64")]
)
def test_precision_by_kind(name: str, dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    course.start(name)
    assert torch.get_default_dtype() == getattr(torch, dtype)
    course.start(name, dtype="float16")
    assert torch.get_default_dtype() == torch.float16


def test_global_generators_are_seeded(capsys: pytest.CaptureFixture[str]) -> None:
    def draw() -> tuple[float, ...]:
        course.start("00_start_here", seed=3)
        return random.random(), float(np.random.rand()), torch.rand(1).item()

    assert draw() == draw()


def test_libraries_are_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    course.start("00_start_here")
    warnings.warn("noise", stacklevel=1)
    assert repr(torch.tensor([1 / 3, 2e-6])) == "tensor([0.3333, 0.0000])"
    assert capsys.readouterr().err == ""


def test_problems_are_said_with_their_fix(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (old, missing) = problems((3, 9), ("torch", "no_such_package"))
    assert old.startswith("[FAIL] Python 3.9 is older than 3.11; fix: make setup")
    assert missing == "[FAIL] no_such_package is not installed for this kernel; fix: pip install -r requirements.txt"
    assert [*problems()] == []
    monkeypatch.setattr("ppo_lab.course.session.problems", lambda: iter([missing]))
    course.start("00_start_here")
    out = capsys.readouterr().out
    assert out.startswith(missing) and "ppo-lab check" in out and "ready" not in out


def test_unknown_notebook() -> None:
    with pytest.raises(ValueError, match="did you mean 04_clipping"):
        course.start("04_cliping")


def test_scratch_folders_are_empty_and_out_of_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    away = course.scratch("demo")
    try:
        assert away.is_dir() and tmp_path not in away.parents and [*tmp_path.iterdir()] == []
    finally:
        away.rmdir()
    (tmp_path / MARKER).touch()
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    (course.scratch("demo") / "old").touch()
    assert course.scratch("demo") == tmp_path / "runs" / "demo" and [*course.scratch("demo").iterdir()] == []


def test_machine_dependent_text_is_marked() -> None:
    assert here("3 s") == "[this machine: 3 s]"


def test_importing_the_course_is_light() -> None:
    code = "import sys; from ppo_lab import course; print(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"matplotlib", "ipywidgets", "transformers", "scipy", "nbformat"} & {*done.stdout.split()}
