"""Every numeric case, in the precisions it allows; ``--cases DIR`` takes another folder of the same schema."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from cases import OPS, evaluate

SHIPPED = Path(__file__).parent / "data" / "cases"
PRECISIONS = {"float64": ("float64", "float32"), "bfloat16": ("bfloat16",)}


def load_compare() -> Any:
    """The comparison that came with the case files."""
    spec = importlib.util.spec_from_file_location("compare", SHIPPED / "compare.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compare = load_compare()


def problems(case: dict[str, Any], dtype: str) -> list[str]:
    """What is wrong with our answer to a case; a bfloat16 case must be as exact as if its inputs were float64."""
    return compare.check(case, evaluate(case, getattr(torch, dtype)), "float32" if dtype == "float32" else "float64")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        folder = metafunc.config.getoption("--cases")
        pairs = [(case, dtype) for case in compare.load(folder) for dtype in PRECISIONS[case["dtype"]]]
        if not pairs:
            raise pytest.UsageError(f"--cases must name a folder of case files (*.json), got {folder}")
        metafunc.parametrize(("case", "dtype"), pairs, ids=[f"{case['id']}-{dtype}" for case, dtype in pairs])


def test_case(case: dict[str, Any], dtype: str) -> None:
    assert problems(case, dtype) == [], case["why"]


def test_every_shipped_case_is_run() -> None:
    cases = compare.load(SHIPPED)
    assert len(cases) == len({case["id"] for case in cases}) == 113
    assert {case["op"] for case in cases} == OPS.keys()


@pytest.mark.parametrize("change", ["value", "sign", "nan", "shape"])
def test_a_wrong_answer_is_noticed(change: str) -> None:
    """Falsified expectations fail in every precision: no tolerance swallows them."""
    (case,) = (c for c in compare.load(SHIPPED) if c["id"] == "gae-trunc-middle")
    case = copy.deepcopy(case)
    row = case["expected"]["advantages"][0]
    if change == "shape":
        case["expected"]["advantages"] = row
    else:
        row[2] = {"value": row[2] * 1.001, "sign": -row[2], "nan": "nan"}[change]
    assert problems(case, "float64") and problems(case, "float32")
