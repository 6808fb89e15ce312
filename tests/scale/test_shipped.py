"""What is shipped for many devices: every file parses, divides and fits; every DeepSpeed value is explained."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ppo_lab.config import ConfigError, RLHFConfig, load_config
from ppo_lab.paths import config_root, find_config
from ppo_lab.scale.batch import effective_batch
from ppo_lab.scale.memory import plan
from ppo_lab.scale.memory.quoted import QUOTED
from ppo_lab.scale.shipped import WANTED, header_of, is_scale_config, scale_names, setup_of, zero_files

FOLDER = config_root() / "scale"
each = pytest.mark.parametrize("name", scale_names())


def test_three_sizes_are_shipped() -> None:
    assert {*scale_names()} >= {"scale/7b", "scale/13b", "scale/70b"}
    assert not is_scale_config("rlhf/demo") and not is_scale_config("7B")


@each
def test_it_divides_and_fits(name: str) -> None:
    setup, cfg = setup_of(name), load_config(name, world=RLHFConfig)
    made = plan(setup)
    assert made.fits, f"{name} needs {made.peak / 1e9:.0f} GB in the {made.phase}"
    assert setup.rows == effective_batch(setup.micro_batch, setup.accumulation, setup.data)
    assert cfg.rows % (setup.data * setup.sample_batch) == 0 and cfg.rows % cfg.ppo.minibatches == 0
    assert cfg.learner.kind == "zero" and cfg.learner.stage == 3 and cfg.rows * cfg.sampling.max_new_tokens >= 2048


@each
def test_the_header_names_what_is_needed(name: str) -> None:
    header, cfg = header_of(find_config(name)), load_config(name, world=RLHFConfig)
    assert {*WANTED} <= header.keys()
    assert name in header["launch"]
    for needed in (cfg.policy.path, cfg.reward.sources[0].path, cfg.corpus.path):
        assert needed in header["inputs"]
    for file in re.findall(r"configs/scale/\S+", header["launch"]):
        assert (FOLDER / Path(file).name).is_file()


@each
def test_a_batch_twice_as_large_or_half_the_memory_shows(name: str) -> None:
    """Planted: what makes the file right can be wrong."""
    from dataclasses import replace

    setup = setup_of(name)
    assert not plan(replace(setup, memory=setup.memory / 2)).fits
    assert not plan(replace(setup, stage=1, generation="gathered")).fits


@pytest.mark.parametrize("row", QUOTED, ids=lambda row: row.model)
def test_rate_clip_epochs_and_effective_batch_are_the_quoted_ones(row: Any) -> None:
    cfg = load_config(f"scale/{row.model.lower()}", world=RLHFConfig)
    assert (cfg.optimizer.actor_rate, cfg.ppo.clip, cfg.ppo.epochs) == (row.rate, row.clip, row.epochs)
    assert (cfg.minibatch_rows, cfg.optimizer.max_norm) == (row.effective, row.max_norm)
    assert cfg.ppo.micro_batch < row.per_device
    schedule = cfg.optimizer
    assert (schedule.schedule, schedule.warmup, schedule.start, schedule.floor) == ("warmup_cosine", 0.1, 0.01, 0.01)


def test_headers_are_read(tmp_path: Path) -> None:
    text = (FOLDER / "7b.yaml").read_text(encoding="utf-8")
    mine = tmp_path / "mine.yaml"
    mine.write_text(text.replace("# launch:", "# start:"), encoding="utf-8")
    with pytest.raises(ConfigError, match="mine.yaml must say launch in its header"):
        setup_of(str(mine))
    mine.write_text(text.replace("8 x 80 GB", "eight large ones"), encoding="utf-8")
    with pytest.raises(ConfigError, match="must name its hardware as '8 x 80 GB', got 'eight large ones"):
        setup_of(str(mine))
    mine.write_text(text.replace("  micro_batch: 8", "  #"), encoding="utf-8")
    with pytest.raises(ConfigError, match="must set ppo.micro_batch and sampling.batch"):
        setup_of(str(mine))


# --- DeepSpeed -------------------------------------------------------------------------------------------------------


def leaves(data: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in data.items():
        yield from leaves(value, f"{prefix}{name}.") if isinstance(value, dict) else [f"{prefix}{name}"]


def explained() -> dict[str, tuple[str, str]]:
    """Value to (setting, reason), from the page beside the files."""
    page = (FOLDER / "zero.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| (.+?) \| (.+) \|$", page, flags=re.M)
    return {name: (setting, why) for name, setting, why in rows if not name.endswith(".json")}


@pytest.mark.parametrize("name", sorted(zero_files()))
def test_files_are_what_the_learner_makes(name: str) -> None:
    assert json.loads((FOLDER / name).read_text(encoding="utf-8")) == zero_files()[name]


def test_every_value_is_explained_and_nothing_else() -> None:
    used = {leaf for settings in zero_files().values() for leaf in leaves(settings)}
    page = explained()
    assert {*page} == used and all(len(why) > 5 for _, why in page.values())
    listed = re.findall(r"^\| `(\w+\.json)` ", (FOLDER / "zero.md").read_text(encoding="utf-8"), flags=re.M)
    assert {*listed} == {path.name for path in FOLDER.glob("*.json")} == {*zero_files()}


def test_explained_values_are_the_ones_set() -> None:
    found: dict[str, set[str]] = {}
    for settings in zero_files().values():
        for leaf in leaves(settings):
            value: Any = settings
            for part in leaf.split("."):
                value = value[part]
            found.setdefault(leaf, set()).add(f"{value:g}" if isinstance(value, float) else str(value).lower())
    for name, (setting, _) in explained().items():
        numbers = re.findall(r"true|false|cpu|[\d.]+(?:e\d+)?", setting)
        said = {f"{float(x):g}" if re.match(r"\d", x) else x for x in numbers}
        have = {f"{float(x):g}" if re.match(r"-?\d", x) else x for x in found[name]}
        assert said == have, f"{name}: the page says {setting}, the files {sorted(have)}"


# --- launchers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(FOLDER.glob("accelerate_*.yml")), ids=lambda path: path.stem)
def test_accelerate_reads_its_files(path: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    cfg = load_config_from_file(str(path))
    data = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert cfg.num_processes == data["num_processes"] and cfg.num_machines == data["num_machines"]
    assert cfg.num_processes % cfg.num_machines == 0 and not cfg.deepspeed_config
    assert data["mixed_precision"] == "no"
    spread = re.search(r"(\d+)x(\d+)|_(\d+)$", path.stem)
    if spread:
        machines, each_one = (int(spread[1]), int(spread[2])) if spread[1] else (1, int(spread[3]))
        assert (cfg.num_machines, cfg.num_processes) == (machines, machines * each_one)


def test_slurm_script_is_a_script() -> None:
    path = FOLDER / "train.slurm"
    text = path.read_text(encoding="utf-8")
    bash = shutil.which("bash")
    assert bash and subprocess.run([bash, "-n", str(path)], check=False).returncode == 0
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", text, flags=re.M))
    assert options["ntasks-per-node"] == "1" and options["gpus-per-node"] == "8"
    assert '-m ppo_lab.cli train "$config" "$@"' in text


def test_slurm_script_starts_what_it_should(tmp_path: Path) -> None:
    """With stand-ins for SLURM's commands: one launcher a node, eight processes each, our command behind it."""
    for name, body in {"scontrol": 'printf "node7\\nnode8\\n"', "srun": 'printf "%s\\n" "$@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["bash", str(FOLDER / "train.slurm"), "scale/13b", "steps=3"], text=True, capture_output=True, check=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "x", "SLURM_JOB_NUM_NODES": "2",
             "SLURM_JOB_ID": "5", "SLURM_CPUS_PER_TASK": "64"},
    )  # fmt: skip
    words = done.stdout.split()
    assert words[words.index("--nnodes") + 1] == "2" and words[words.index("--nproc_per_node") + 1] == "8"
    assert "node7:29500" in words and words[-5:] == ["-m", "ppo_lab.cli", "train", "scale/13b", "steps=3"]
