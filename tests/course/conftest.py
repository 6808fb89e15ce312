"""Every test of the course begins with a fresh session and leaves torch as it was."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from ppo_lab.course import claims, session

    monkeypatch.setattr(session.SESSION, "name", "")
    monkeypatch.setattr(session.SESSION, "done", {})
    monkeypatch.setattr(claims, "_CLAIMS", {})
    for name in session.QUIET:
        monkeypatch.setenv(name, "")
    dtype, threads, printing = torch.get_default_dtype(), torch.get_num_threads(), torch._tensor_str.PRINT_OPTS
    before = vars(printing).copy()
    with warnings.catch_warnings():
        yield
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)
    for name, value in before.items():
        setattr(printing, name, value)
