"""A review as a ribbon of tokens, padded on either side: which row of logits predicts which token, and what goes wrong.

The models are real: the shipped policy (rotary positions) and a small one with learned positions, both called as
transformers models. What is right is the same review without any padding; everything else is compared with it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ppo_lab.course.panels import Choice, Panel, Slider
from ppo_lab.rlhf.logprobs import token_logprobs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEXT = "this movie has a perfect cast and the pacing is lovely ."
PROMPT, MOST_PADS, SAME = 4, 6, 1e-3  # tokens of the prompt; nats below which nothing has moved
MODELS = ("rotary (Llama)", "learned (GPT-2)")
POSITIONS = ("counted from the text", "counted from the row")
HIDDEN = ("hidden", "in sight")
GATHER = ("one place before", "the token's own place")
BLUE, ORANGE, GREEN, GREY, PALE = "#0072B2", "#D55E00", "#009E73", "#999999", "#dbe9f4"


class Review(NamedTuple):
    """Ids and words of beginning, review and end, and the id of padding."""

    ids: tuple[int, ...]
    words: tuple[str, ...]
    pad: int


@functools.cache
def review() -> Review:
    """The sentence as the shipped tokenizer reads it."""
    from ppo_lab.rlhf.models.build import load_tokenizer

    tokenizer = load_tokenizer("shipped/sft")
    ids = [tokenizer.bos_token_id, *tokenizer(TEXT, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    return Review(tuple(ids), tuple(tokenizer.convert_ids_to_tokens(ids)), tokenizer.pad_token_id)


@functools.cache
def model(kind: str) -> Any:
    """The shipped policy, or a random GPT-2 with the same vocabulary; its positions weigh as much as its words."""
    if kind == MODELS[0]:
        from ppo_lab.rlhf.models.build import load_policy

        return load_policy("shipped/sft").eval()
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = GPT2LMHeadModel(GPT2Config(vocab_size=128, n_positions=32, n_embd=48, n_layer=2, n_head=4,
                                          initializer_range=0.3, bos_token_id=1, eos_token_id=2))  # fmt: skip
    return made.eval()


@functools.lru_cache(maxsize=512)
@torch.no_grad()
def logits(kind: str, side: str, pads: int, positions: str, padding: str) -> Tensor:
    """Logits (L, V) of the padded row."""
    ids, _, pad = review()
    real = [False] * pads + [True] * len(ids) if side == "left" else [True] * len(ids) + [False] * pads
    row = [pad] * pads + [*ids] if side == "left" else [*ids] + [pad] * pads
    counted = (torch.tensor([real]).cumsum(-1) - 1).clamp(min=0)
    places = counted if positions == POSITIONS[0] else torch.arange(len(row))[None]
    seen = torch.tensor([real]) if padding == HIDDEN[0] else torch.ones(1, len(row), dtype=torch.bool)
    given = {"input_ids": torch.tensor([row]), "attention_mask": seen.long(), "position_ids": places}
    return model(kind)(**given).logits[0].double()


def facts(side: str, pads: float, positions: str, padding: str, gather: str, kind: str, token: float) -> dict[str, Any]:
    """Log-probs of the answer's tokens as gathered, and as they are without padding."""
    pads, token = int(pads), int(token)
    ids, words, _ = review()
    before = pads if side == "left" else 0
    places = torch.arange(PROMPT, len(ids)) + before
    answer = torch.tensor(ids[PROMPT:])
    rows = places - int(gather == GATHER[0])
    logp = token_logprobs(logits(kind, side, pads, positions, padding)[rows], answer)
    plain = logits(kind, "left", 0, POSITIONS[0], HIDDEN[0])
    true = token_logprobs(plain[PROMPT - 1 : -1], answer)
    return {
        "logp": logp, "true": true, "error": float((logp - true).abs().max()), "sum": float(logp.sum()),
        "right_sum": float(true.sum()), "word": words[PROMPT + token - 1], "here": float(logp[token - 1]),
        "place": int(places[token - 1]), "row": int(rows[token - 1]), "before": before,
    }  # fmt: skip


def build(figure: Figure) -> dict[str, Any]:
    """Above the ribbon with its positions and an arrow, below the log-probs as bars."""
    from matplotlib.patches import Rectangle

    most = len(review().ids) + MOST_PADS
    ribbon = figure.add_axes((0.085, 0.62, 0.91, 0.37))
    ribbon.set(xlim=(-0.5, most - 0.5), ylim=(-1.25, 1.15))
    ribbon.axis("off")
    boxes = []
    for i in range(most):
        box = Rectangle((i - 0.46, -0.4), 0.92, 0.8, facecolor="white", edgecolor=GREY, lw=1)
        ribbon.add_patch(box)
        word = ribbon.text(i, 0, "", ha="center", va="center", fontsize=8.5, rotation=38)
        place = ribbon.text(i, -0.75, "", ha="center", va="center", fontsize=8, color=GREY)
        boxes.append((box, word, place))
    legend = "below: position ids. Green: these logits are read; orange: the token whose log-prob is asked for"
    ribbon.text(-0.5, -1.1, legend, fontsize=8, color=GREY)
    arrow = ribbon.annotate("", (1, 0.42), (0, 0.42), arrowprops={"arrowstyle": "->", "color": "black", "lw": 1.8,
                                                                   "connectionstyle": "arc3,rad=-1.1"})  # fmt: skip
    axes = figure.add_axes((0.085, 0.155, 0.905, 0.42))
    count = len(review().ids) - PROMPT
    bars = axes.bar([x - 0.2 for x in range(count)], [0.0] * count, 0.4, color=BLUE, label="as gathered")
    truth = axes.bar([x + 0.2 for x in range(count)], [0.0] * count, 0.4, color=GREY, label="right")
    axes.set_xticks(range(count), review().words[PROMPT:], rotation=25, ha="right", fontsize=9)
    axes.set(xlim=(-0.6, count - 0.4), ylim=(-16, 0.5), ylabel="log π, nats")
    axes.legend(loc="lower left", frameon=False, fontsize=9, ncols=2)
    return {"boxes": boxes, "arrow": arrow, "bars": bars, "truth": truth}


def draw(artists: Mapping[str, Any], found: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
    """Fill the ribbon, move the arrow and the bars."""
    ids, words, _ = review()
    before = found["before"]
    for i, (box, word, place) in enumerate(artists["boxes"]):
        at = i - before
        inside, used = 0 <= at < len(ids), i < len(ids) + int(settings["pads"])
        face = "white" if not inside else PALE if at < PROMPT else "#f4e3d3"
        box.set(facecolor=GREEN if i == found["row"] else ORANGE if i == found["place"] else face, visible=used)
        word.set(text=words[at] if inside else "pad", visible=used,
                 color="white" if i in (found["row"], found["place"]) else "black" if inside else GREY)  # fmt: skip
        counted = max(min(at, len(ids) - 1), 0)
        place.set(text=str(counted if settings["positions"] == POSITIONS[0] else i), visible=used)
    artists["arrow"].xy = (found["place"], 0.42)
    artists["arrow"].set_position((found["row"], 0.42))
    artists["arrow"].set_visible(found["row"] != found["place"])
    for bar, height in zip(artists["bars"], found["logp"].clamp(min=-15.8).tolist(), strict=True):
        bar.set_height(height)
    for bar, height in zip(artists["truth"], found["true"].clamp(min=-15.8).tolist(), strict=True):
        bar.set_height(height)


def unmoved(found: Mapping[str, Any]) -> bool:
    """Whether every log-prob is that of the unpadded review."""
    return bool(found["error"] < SAME)


def ribbon_panel() -> Panel:
    """Side and number of pads, what the model is told of them, and where log-probs are read."""
    count = len(review().ids) - PROMPT
    return Panel(
        "A ribbon of tokens",
        controls=(
            Choice("side", "pad on the", "left", ("left", "right")),
            Slider("pads", "pads", 3, 0, MOST_PADS, 1, digits=0),
            Choice("positions", "positions", POSITIONS[1], POSITIONS),
            Choice("padding", "padding is", HIDDEN[0], HIDDEN),
            Choice("gather", "log-probs read", GATHER[0], GATHER),
            Choice("kind", "position embedding", MODELS[1], MODELS),
            Slider("token", "token of the answer", 3, 1, count, 1, digits=0),
        ),
        facts=facts,
        build=build,
        draw=draw,
        table={
            "log-probs are off by": "{error:.2f} nats at most",
            "log π of the answer": "{sum:.2f} (right: {right_sum:.2f})",
            "this token": "{word}, log π {here:.2f}",
            "read at row": "{row}, the token stands at {place}",
        },
        alt="{pads:.0f} pads on the {side}: the log-probs of the answer are off by {error:.2f} nats at most, their sum "
        "is {sum:.2f}; “{word}” has {here:.2f}.",
        missions=(
            ("learned positions, 4 pads or more on the left: no log-prob moves",
             lambda f, s: s["kind"] == MODELS[1] and s["side"] == "left" and s["pads"] >= 4 and unmoved(f)),
            ("padding in sight, 3 pads or more: and still no log-prob moves",
             lambda f, s: s["padding"] == HIDDEN[1] and s["pads"] >= 3 and unmoved(f)),
            ("5 pads or more on the left, positions counted from the row: who forgives it?",
             lambda f, s: s["side"] == "left" and s["pads"] >= 5 and s["positions"] == POSITIONS[1] and unmoved(f)),
        ),
        size=(8.4, 3.8),
    )  # fmt: skip
