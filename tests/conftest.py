"""Options of the test run."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cases",
        type=Path,
        default=Path(__file__).parent / "data" / "cases",
        metavar="DIR",
        help="folder of numeric case files for tests/test_cases.py (schema: tests/data/cases/SCHEMA.md)",
    )
