"""``ppo-lab plan``: bytes of one device, before anything is launched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ppo_lab.cli.shared import out, plain_errors


def plan(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="7B, 13B, 70B, 135M, a folder with config.json, or a scale config.")
    ],
    devices: Annotated[int | None, typer.Option(help="All of them, D x T x P.", show_default="8")] = None,
    memory: Annotated[float | None, typer.Option(metavar="GB", help="Of one device.", show_default="80")] = None,
    stage: Annotated[int | None, typer.Option(help="Of ZeRO, 0 to 3.", show_default="3")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, bf16 or fp16.", show_default="bf16")] = None,
    master: Annotated[bool | None, typer.Option(help="Keep a float32 copy.", show_default="master")] = None,
    offload: Annotated[str | None, typer.Option(help="none, optimizer or all.", show_default="none")] = None,
    recompute_every: Annotated[
        int | None, typer.Option(metavar="K", help="Recompute every K-th block; 0: none.", show_default="0")
    ] = None,
    recompute: Annotated[str | None, typer.Option(help="block or selective.", show_default="block")] = None,
    lora: Annotated[int | None, typer.Option(metavar="RANK", help="Train adapters.", show_default="0: off")] = None,
    prompt: Annotated[int | None, typer.Option(metavar="TOKENS", show_default="512")] = None,
    answer: Annotated[int | None, typer.Option(metavar="TOKENS", show_default="512")] = None,
    rows: Annotated[int | None, typer.Option(help="Sequences an optimizer step.", show_default="256")] = None,
    micro_batch: Annotated[
        int | None, typer.Option(help="Sequences a forward; left out: the planner chooses.", show_default=False)
    ] = None,
    sample_batch: Annotated[
        int | None, typer.Option(help="Sequences sampled at a time; left out: chosen.", show_default=False)
    ] = None,
    generation: Annotated[str | None, typer.Option(help="gathered or sharded.", show_default="gathered")] = None,
    tensor: Annotated[int | None, typer.Option(metavar="T", show_default="1")] = None,
    pipeline: Annotated[int | None, typer.Option(metavar="P", show_default="1")] = None,
    node_memory: Annotated[float | None, typer.Option(metavar="GB", help="Of a node.", show_default="1000")] = None,
    node_devices: Annotated[int | None, typer.Option(help="Devices of a node.", show_default="8")] = None,
    load: Annotated[str | None, typer.Option(help="sharded (stage 3) or whole.", show_default="sharded")] = None,
) -> None:
    """Say what four models need on each device and on each node.

    And whether it fits, and what to change first.
    """
    given = {name: value for name, value in locals().items() if value is not None}
    with plain_errors():
        from ppo_lab.scale.memory import plan as make
        from ppo_lab.scale.memory.sheet import lines

        for line in lines(make(setup_for(given.pop("model"), in_bytes(given)))):
            out.print(line)


def in_bytes(given: dict[str, Any]) -> dict[str, Any]:
    """Memory in bytes, where a command has it in GB."""
    return {name: value * 1e9 if name in ("memory", "node_memory") else value for name, value in given.items()}


def setup_for(model: str, chosen: dict[str, Any]) -> Any:
    """The setup that a model's name, folder or scale config and the options describe; free batches are chosen."""
    from ppo_lab.scale.memory import Setup, choose_batches
    from ppo_lab.scale.memory.planner import BATCHES
    from ppo_lab.scale.shipped import is_scale_config, settings_of

    known = settings_of(model) if is_scale_config(model) else {"policy": shape_for(model)}
    wanted = {**known, **chosen}
    wanted |= {name: None for name in ("lora", "recompute_every") if wanted.get(name) == 0}
    if chosen.get("recompute") == "selective" and wanted.get("recompute_every") is None:
        raise ValueError("recompute selective needs recompute-every (which blocks), got none; add --recompute-every 1")
    setup = Setup(**wanted)
    return choose_batches(setup, free=[name for name in BATCHES if name not in wanted])


def shape_for(model: str) -> Any:
    """A known shape by name, or that of a model's folder."""
    from ppo_lab.scale.memory.reading import shape_of
    from ppo_lab.scale.memory.shape import named

    if (Path(model) / "config.json").is_file():
        from transformers import AutoConfig

        return shape_of(AutoConfig.from_pretrained(model))
    return named(model)
