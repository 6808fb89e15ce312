"""Every setting of a run: default, type, meaning, and what happens as it rises. From the config classes themselves."""

from __future__ import annotations

import re
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml

from ppo_lab.config import Config, ControlConfig, RLHFConfig
from ppo_lab.config.base import config_class
from ppo_lab.config.control import USUAL
from ppo_lab.course.docs.effects import EFFECTS, MEANINGS
from ppo_lab.course.docs.markdown import code, table

EFFECT = re.compile(r"(?:^|(?<=[.;] ))(?:Higher|Lower|More|Fewer|Above|Below)\b.*", re.S)
WORDS = {bool: "true or false", int: "integer", float: "number", str: "text", dict: "mapping"}
SIGNS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
TITLES = {
    "": "The run", "corpus": "Corpus", "policy": "Policy and reference", "sft": "Supervised fine-tuning",
    "reward_model": "Reward model", "reward": "Reward", "kl": "KL to the reference", "sampling": "Rollout",
    "critic": "Critic", "ppo": "The PPO update", "optimizer": "Optimizer", "evaluation": "Evaluation",
    "checkpoint": "Checkpoints", "log": "Log", "env": "Environments", "net": "Actor and critic",
    "normalize": "Statistics", "penalty": "KL penalty", "trust_region": "Trust region", "schedule": "Schedules",
}  # fmt: skip


def configuration(root: Path) -> str:
    """The page."""
    language, control = sections(RLHFConfig), sections(ControlConfig)
    own = {key: fields for key, fields in control.items() if key not in USUAL}
    others = ", ".join(code(f"{key}.{name}={'null' if value is None else value}")
                       for key, changed in USUAL.items() for name, value in changed.items())  # fmt: skip
    return f"""\
# Configuration

{sum(map(len, language.values()))} settings. A run's `config.yaml` holds them all; a file of your own needs only what
differs from the defaults here. On the command line: `ppo-lab train rlhf/demo kl.beta=0.1 ppo.clip=0.1`. Unknown names
are refused, with the nearest one.

{written(RLHFConfig, language)}

# Configuration of control

A file that names an environment (`env.id`) is a control run: `ppo-lab train control/cartpole ppo.clip=0.1`. The
sections {", ".join(map(code, USUAL))} are those above, with other defaults: {others}.

{written(ControlConfig, own)}
"""


def sections(cls: type[Config]) -> dict[str, list[tuple[str, Any]]]:
    """Settings by section; those of the run itself under ``""``."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for name, field in cls.leaves():
        found.setdefault(name.partition(".")[0] if "." in name else "", []).append((name, field))
    return found


def written(cls: type[Config], found: dict[str, list[tuple[str, Any]]]) -> str:
    """Each section: title, what it is, its table."""
    return "\n\n".join(f"## {title(key)}\n\n{about(cls, key)}{settings(fields)}" for key, fields in found.items())


def title(key: str) -> str:
    """The heading of a section.

    >>> title("kl"), title("my_own")
    ('KL to the reference', 'My own')
    """
    return TITLES.get(key, key.replace("_", " ").capitalize())


def about(cls: type[Config], key: str) -> str:
    """What a section is, from its class."""
    inner = config_class(cls.model_fields[key].annotation) if key else cls
    text = (inner.__doc__ or "").split("\n\n")[0].replace("\n    ", " ").strip() if inner else ""
    note = " `reward.sources` is a list; each entry has the three settings below." if key == "reward" else ""
    return f"{text}{note}\n\n" if text else ""


def settings(fields: list[tuple[str, Any]]) -> str:
    """The table of one section."""
    head = ("setting", "default", "type", "what it is", "as it changes")
    return table(head, ((code(n), code(default(f)), kind_of(f), *meaning(n, f.description or "")) for n, f in fields))


def default(field: Any) -> str:
    """The default as YAML.

    >>> default(RLHFConfig.model_fields["threads"]), default(RLHFConfig.model_fields["precision"])
    ('1', 'no')
    """
    if field.is_required():
        return "none: give it"
    value = field.get_default(call_default_factory=True)
    plain = list(value) if isinstance(value, tuple) else value
    if isinstance(plain, str | float):
        return f"{plain:g}" if isinstance(plain, float) else plain
    return yaml.safe_dump(plain, default_flow_style=True, allow_unicode=True).removesuffix("\n...\n").strip()


def kind_of(field: Any) -> str:
    """Type and bounds in words.

    >>> kind_of(RLHFConfig.model_fields["threads"]), kind_of(ControlConfig.model_fields["algorithm"])
    ('integer > 0', 'ppo, trpo')
    """
    return described(field.annotation, bounds(field.metadata))


def described(annotation: Any, limit: str = "") -> str:
    """An annotation in words; ``limit`` belongs to its numbers."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return described(inner[0], bounds(annotation.__metadata__))
    if origin is Literal:
        return ", ".join(map(str, inner))
    if origin is dict:
        return WORDS[dict]
    if origin is tuple:
        listed = inner[-1] is Ellipsis
        return f"list of {described(inner[0])}" if listed else f"[{', '.join(described(part) for part in inner)}]"
    if origin in (Union, UnionType):
        return " or ".join("null" if part is NoneType else described(part, limit) for part in inner)
    return f"{WORDS[annotation]} {limit}".strip()


def bounds(metadata: Any) -> str:
    """Limits of a number.

    >>> bounds(RLHFConfig.model_fields["threads"].metadata)
    '> 0'
    """
    found = [(sign, getattr(item, name, None)) for item in metadata for name, sign in SIGNS.items()]
    return " and ".join(f"{sign} {value:g}" for sign, value in found if value is not None)


def meaning(name: str, text: str) -> tuple[str, str]:
    """(what it is, what happens as it rises) from a description; `effects` has what descriptions leave out.

    >>> meaning("kl.beta", "Weight of the KL. Higher: nearer to the reference.")
    ('Weight of the KL.', 'Higher: nearer to the reference.')
    """
    found = EFFECT.search(text)
    what, effect = (text[: found.start()].strip(), found[0]) if found else (text, EFFECTS.get(name, "–"))
    return what or MEANINGS[name], effect
