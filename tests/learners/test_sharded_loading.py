"""No rank ever holds a whole model: the memory that two processes take while they load four, and the way it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from learners.gloo import TESTS

pytestmark = [pytest.mark.distributed, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]
SCRIPT = TESTS.parent / "benchmarks" / "soak" / "sharded_loading.py"


def test_a_rank_takes_its_shards_of_four_models_and_little_more(tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    command = [sys.executable, str(SCRIPT), "--worlds", "2", "--layers", "4", "--width", "384", "--out", str(out)]
    environment = os.environ | {"PYTHONPATH": str(TESTS.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=300, check=False)
    assert out.exists(), done.stderr
    shards, whole = json.loads(out.read_text())["rows"]
    assert (shards["way"], whole["way"]) == ("shards", "whole") and shards["four_models_mib"] > 140
    assert abs(2 * shards["shards_mib"] / shards["four_models_mib"] - 1) < 0.01
    assert 0.9 * shards["shards_mib"] < shards["loading_mib"] <= shards["allowed_mib"]
    assert whole["loading_mib"] > whole["allowed_mib"], "the measure sees what the other way takes"
    assert done.returncode == 0
