"""Where the bytes of four models go on one device: the planner as a panel. Bars are phases, colours are parts.

Everything drawn is `ppo_lab.scale.memory.plan`, which tests hold against ZeRO's paper and against live models. The
devices have 80 GB each; the effective batch is 256 sequences of 1,024 tokens.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ppo_lab.course.panels import Choice, Panel, Steps
from ppo_lab.scale.memory import SHAPES, Plan, Setup, plan
from ppo_lab.scale.memory.planner import PHASES
from ppo_lab.scale.memory.setup import GENERATIONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MODELS = ("7B", "13B", "70B")
DEVICES = (4, 8, 16, 32, 64)
STAGES = (0, 1, 2, 3)
RECOMPUTE: dict[str, int | None] = {"nothing": None, "every 2nd block": 2, "every block": 1}
MICRO = (1, 4, 16)
MEMORY = 80e9
PARTS = {  # name -> colour; trained parts warm, frozen blue, passing ones grey to green
    "trained weights": "#D55E00",
    "gradients": "#E69F00",
    "optimizer": "#F0C36A",
    "frozen weights": "#0072B2",
    "gathered policy": "#56B4E9",
    "key-value cache": "#66C2A5",
    "activations": "#009E73",
    "logits": "#000000",
    "buffers": "#999999",
}


@functools.cache
def planned(model: str, devices: int, stage: int, recompute: str, micro: int, generation: str) -> Plan:
    """The plan of one setting."""
    return plan(Setup(policy=SHAPES[model], devices=devices, stage=stage, recompute_every=RECOMPUTE[recompute],
                      micro_batch=micro, sample_batch=8, generation=generation, memory=MEMORY))  # fmt: skip


def facts(model: str, devices: int, stage: int, recompute: str, micro: int, generation: str) -> dict[str, Any]:
    """Bytes in GB: by phase and part, the peak, what is left; and the peak over the number of devices."""
    made = planned(model, devices, stage, recompute, micro, generation)
    largest = max(made.parts, key=lambda name: made.parts[name])
    return {
        "phases": {name: {k: v / 1e9 for k, v in {**made.lasting, **made.phases[name]}.items()} for name in PHASES},
        "peak": made.peak / 1e9,
        "phase": made.phase,
        "largest": largest,
        "largest_gb": made.parts[largest] / 1e9,
        "activations": made.phases["update"]["activations"] / 1e9,
        "budget": made.setup.budget / 1e9,
        "left": (made.setup.budget - made.peak) / 1e9,
        "fits": "yes" if made.fits_device else "no",
        "accumulation": made.setup.accumulation,
        "over_devices": [planned(model, n, stage, recompute, micro, generation).peak / 1e9 for n in DEVICES],
    }


def build(figure: Figure) -> dict[str, Any]:
    """Left: three bars of stacked parts. Right: peak over devices, both axes in powers."""
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    figure.subplots_adjust(0.09, 0.30, 0.98, 0.93, 0.26)
    left.set(xlabel="GB on one device", yticks=range(len(PHASES)), yticklabels=PHASES)
    left.invert_yaxis()
    bars = {name: left.barh(range(len(PHASES)), [0.0] * len(PHASES), 0.62, color=color, label=name)
            for name, color in PARTS.items()}  # fmt: skip
    budget = left.axvline(0, color="black", ls="--", lw=1.2)
    left.legend(loc="upper center", bbox_to_anchor=(0.45, -0.22), ncols=5, frameon=False, fontsize=8,
                columnspacing=1.0, handlelength=1.1)  # fmt: skip
    right.set(xscale="log", yscale="log", xlabel="devices", ylabel="GB on one device, largest phase",
              xlim=(3.6, 72), ylim=(5, 4000))  # fmt: skip
    right.set_xticks(DEVICES, [str(n) for n in DEVICES])
    right.minorticks_off()
    right.set_yticks([10, 100, 1000], ["10", "100", "1,000"])
    (line,) = right.plot([], [], color="#D55E00", lw=2)
    (dot,) = right.plot([], [], "o", color="#D55E00", ms=9)
    limit = right.axhline(0, color="black", ls="--", lw=1.2)
    name = right.text(3.9, 0, "what fits", va="top", fontsize=8)
    return {"left": left, "bars": bars, "budget": budget, "line": line, "dot": dot, "limit": limit, "name": name}


def draw(artists: Mapping[str, Any], found: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Stack the bars, move line, dot and limits."""
    start = [0.0] * len(PHASES)
    for name, container in artists["bars"].items():
        for i, phase in enumerate(PHASES):
            size = found["phases"][phase].get(name, 0.0)
            container.patches[i].set_x(start[i])
            container.patches[i].set_width(size)
            start[i] += size
    artists["left"].set_xlim(0, 1.06 * max(*start, found["budget"]))
    artists["budget"].set_xdata([found["budget"]] * 2)
    artists["line"].set_data(DEVICES, found["over_devices"])
    artists["dot"].set_data([settings["devices"]], [found["peak"]])
    artists["limit"].set_ydata([found["budget"]] * 2)
    artists["name"].set_position((3.9, 0.92 * found["budget"]))


def _on(found: Mapping[str, Any], settings: Mapping[str, Any], models: tuple[str, ...], most: int) -> bool:
    return found["fits"] == "yes" and settings["model"] in models and settings["devices"] <= most


def memory_panel() -> Panel:
    """Model, devices, ZeRO stage, recomputing, micro-batch, and whether the policy is gathered to sample."""
    return Panel(
        "Where the bytes go",
        controls=(
            Choice("model", "each of four models", "13B", MODELS),
            Steps("devices", "devices of 80 GB", 8, DEVICES),
            Steps("stage", "ZeRO stage", 3, STAGES),
            Choice("recompute", "recompute", "nothing", tuple(RECOMPUTE)),
            Steps("micro", "micro-batch", 1, MICRO),
            Choice("generation", "generation", "gathered", GENERATIONS),
        ),
        facts=facts,
        build=build,
        draw=draw,
        table={
            "largest phase": "{phase}: {peak:.1f} GB",
            "largest part of it": "{largest}: {largest_gb:.1f} GB",
            "may be used": "{budget:.1f} GB",
            "fits": "{fits} ({left:+.1f} GB)",
            "activations of the update": "{activations:.1f} GB",
            "forwards in one step": "{accumulation}",
        },
        alt="Four {model} models on {devices} devices, ZeRO stage {stage}, recomputing {recompute}: the {phase} needs "
        "{peak:.1f} GB a device of {budget:.1f}, most of it {largest}.",
        missions=(
            (
                "fit 7B on at most 8 devices, four rows a forward or more",
                lambda f, s: s["micro"] >= 4 and _on(f, s, ("7B",), 8),
            ),
            ("fit 13B or 70B on at most 16 devices", lambda f, s: _on(f, s, ("13B", "70B"), 16)),
            (
                "let it fit, with activations as the largest part",
                lambda f, s: f["fits"] == "yes" and f["largest"] == "activations",
            ),
        ),
        size=(8.6, 3.9),
    )
