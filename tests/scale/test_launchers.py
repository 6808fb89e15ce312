"""The same recipe and YAML under torchrun, accelerate launch, deepspeed and `ppo_lab.scale.launch`: the same run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from learners.whole_runs import BASE
from small_runs import log_of, same_tensors

from ppo_lab import checkpoint
from ppo_lab.config import dump, load_config
from ppo_lab.paths import config_root
from ppo_lab.scale.launch import free_port, train

BIN = Path(sys.executable).parent
RUN = ["ppo_lab.cli", "train"]
LAUNCHERS = {
    "torchrun": ["torchrun", "--nproc_per_node", "2", "--master_port", "PORT", "-m", *RUN],
    "accelerate": ["accelerate", "launch", "--config_file", str(config_root() / "scale" / "accelerate_cpu.yml"),
                   "--main_process_port", "PORT", "--module", *RUN],
    "deepspeed": ["deepspeed", "--num_gpus", "2", "--no_local_rank", "--master_port", "PORT", "--module", *RUN],
}  # fmt: skip


@pytest.mark.soak
@pytest.mark.distributed
def test_every_launcher_starts_the_same_run(tmp_path):
    config = tmp_path / "zero.yaml"
    config.write_text(yaml.safe_dump({**BASE, "steps": 2, "learner": {"kind": "zero"}}))
    train(str(config), processes=2, folder=str(tmp_path / "own"), show=None, timeout=300)
    rows, (tensors, _) = log_of(tmp_path / "own"), checkpoint.load(tmp_path / "own" / "checkpoints" / "000002")
    assert len(rows) == 2
    for name, command in LAUNCHERS.items():
        words = [str(BIN / command[0]), *(str(free_port()) if word == "PORT" else word for word in command[1:])]
        environment = os.environ | {"DS_ACCELERATOR": "cpu", "PATH": f"{BIN}:{os.environ['PATH']}"}
        ended = subprocess.run([*words, str(config), "--folder", str(tmp_path / name)], env=environment,
                               capture_output=True, text=True, timeout=300)  # fmt: skip
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert log_of(tmp_path / name) == rows, name
        assert same_tensors(checkpoint.load(tmp_path / name / "checkpoints" / "000002")[0], tensors), name
        assert dump(load_config(tmp_path / name / "config.yaml")) == dump(load_config(tmp_path / "own" / "config.yaml"))
