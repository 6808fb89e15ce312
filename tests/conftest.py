"""Options of the test run. One thread: the tensors are tiny, and two threads on a busy machine are far slower."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported; child processes inherit it


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cases",
        type=Path,
        default=Path(__file__).parent / "data" / "cases",
        metavar="DIR",
        help="folder of numeric case files for tests/test_cases.py (schema: tests/data/cases/SCHEMA.md)",
    )


@pytest.fixture(autouse=True)
def no_listener_left() -> Iterator[None]:
    """A command that was called in a test shows the package's log; the next test's output must not have it."""
    log = logging.getLogger("ppo_lab")
    handlers, level = [*log.handlers], log.level
    yield
    log.handlers[:] = handlers
    log.setLevel(level)
