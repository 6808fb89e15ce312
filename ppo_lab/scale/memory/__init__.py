"""Bytes on each device, by arithmetic, before anything is launched. A GB here is 1e9 bytes.

=============  =====================================================================================
`zero`         ZeRO's own arithmetic: weights, gradients, optimizer under stages 0 to 3
`shape`        sizes of a transformer, and how many weights they make
`reading`      the shape of any decoder that transformers knows
`activations`  what a forward keeps for the backward pass; logits; the key-value cache
`setup`        everything a plan depends on
`host`         main memory of a node: loading, running, saving
`planner`      `plan`: four models on one device, part by part and phase by phase; what to change first
`quoted`       a table of settings that write-ups quote, and why it is refused
`sheet`        plans as text
`measure`      the same quantities counted on a live model
=============  =====================================================================================
"""

from ppo_lab.scale.memory.activations import activation_bytes, cache_bytes, kept_bytes, logits_bytes
from ppo_lab.scale.memory.planner import Plan, advice, choose_batches, plan
from ppo_lab.scale.memory.reading import shape_of
from ppo_lab.scale.memory.setup import Setup, bubble
from ppo_lab.scale.memory.shape import SHAPES, Shape
from ppo_lab.scale.memory.zero import zero_bytes

__all__ = ["SHAPES", "Plan", "Setup", "Shape", "activation_bytes", "advice", "bubble", "cache_bytes", "choose_batches",
           "kept_bytes", "logits_bytes", "plan", "shape_of", "zero_bytes"]  # fmt: skip
