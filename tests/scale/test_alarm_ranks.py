"""The alarm on two processes names the sample that it names on one: copies, and shards of all three stages."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
from learners.gloo import TESTS
from learners.whole_runs import settings, start
from scale.alarm_ranks import KINDS, ROW, ring

from ppo_lab.scale.launch import launch

pytestmark = pytest.mark.distributed
WORLD = 2
SEVERAL = [kind for kind in KINDS if kind != "plain"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What each rank wrote down, by kind; "plain" in this process."""
    home = tmp_path_factory.mktemp("alarm")
    run = start(settings(), home / "made", None)
    run.close()
    models = home / "made" / "models"
    script, path = TESTS / "scale" / "alarm_ranks.py", {"PYTHONPATH": f"{TESTS.parent}:{TESTS}"}
    for kind in SEVERAL:
        shutil.copytree(models, home / kind / "models")
    launch([str(script), str(models), str(home), *SEVERAL], processes=WORLD, timeout=300, show=None, environment=path)
    several = {kind: [json.loads((home / f"{kind}.{rank}.json").read_text()) for rank in range(WORLD)]
               for kind in SEVERAL}  # fmt: skip
    return {"plain": [ring("plain", home / "plain", models)], **several}


def test_one_process_names_the_row_that_slipped(found: dict[str, list[dict[str, Any]]]) -> None:
    (one,) = found["plain"]
    assert len(one["norms"]) == 17 and max(one["norms"]) == one["norms"][ROW] > 10
    assert f"row {ROW} " in one["said"][0]
    assert one["norm"] <= sum(one["norms"]) * (1 + 1e-5), "shares add up to the gradient"


@pytest.mark.parametrize("kind", SEVERAL)
def test_two_processes_say_what_one_says(found: dict[str, list[dict[str, Any]]], kind: str) -> None:
    (one,) = found["plain"]
    for rank in found[kind]:
        assert rank["norms"] == pytest.approx(one["norms"], rel=1e-5, abs=1e-6)
        assert [text.split(" has ")[0].split(": ")[1] for text in rank["said"]] == [
            text.split(" has ")[0].split(": ")[1] for text in one["said"]
        ]
        assert rank == found[kind][0]


@pytest.mark.parametrize("kind", SEVERAL)
def test_nothing_is_left_in_the_gradient(found: dict[str, list[dict[str, Any]]], kind: str) -> None:
    """The norms of the updates after it are those of one process, whose norms added nothing anywhere."""
    (one,) = found["plain"]
    for rank in found[kind]:
        assert rank["norm"] == pytest.approx(one["norm"], rel=1e-5)
        assert rank["later"] == pytest.approx(one["later"], rel=1e-4)
