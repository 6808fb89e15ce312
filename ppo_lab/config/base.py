"""What every config shares: frozen data, unknown keys refused with the nearest name, numbers that stay numbers."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

C = TypeVar("C", bound="Config")


class ConfigError(ValueError):
    """A setting that cannot work; the message names field, rule, value and fix."""


class Config(BaseModel):
    """Frozen settings. Unknown keys are refused; a bool is never taken for a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, use_enum_values=True)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)

    @classmethod
    def leaves(cls, prefix: str = "") -> Iterator[tuple[str, Any]]:
        """Every ``(dotted name, FieldInfo)`` below this class that is not itself a config."""
        for name, field in cls.model_fields.items():
            inner = config_class(field.annotation)
            if inner is None:
                yield prefix + name, field
            else:
                yield from inner.leaves(f"{prefix}{name}.")


def config_class(annotation: Any) -> type[Config] | None:
    """The config class inside an annotation such as ``X``, ``X | None`` or ``tuple[X, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return annotation
    return next((c for c in map(config_class, get_args(annotation)) if c is not None), None)


class _Loader(yaml.SafeLoader):
    """YAML with the float and bool rules of YAML 1.2: ``1e-5`` is a number, ``no`` and ``off`` are words."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, rule) for tag, rule in rules if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:float")]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*\.?[\d_]*([eE][-+]?\d+)|\d[\d_]*\.[\d_]*|\.\d+([eE][-+]?\d+)?|\.inf|\.nan)$", re.I),
    list("-+0123456789."),
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$", re.I), list("tTfF"))


def parse_yaml(text: str, *, where: str = "config") -> Any:
    """YAML text to plain data; a syntax error becomes a `ConfigError` that names the line.

    >>> parse_yaml("[1e-5, 1.0e-5, 1e5, no, true]")
    [1e-05, 1e-05, 100000.0, 'no', True]
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is not valid YAML: {error}") from None


def override(data: dict[str, Any], assignments: list[str]) -> dict[str, Any]:
    """A copy of ``data`` with dotted ``key=value`` assignments applied; values are read as YAML.

    >>> override({"ppo": {"clip": 0.2}}, ["ppo.clip=1e-1"])
    {'ppo': {'clip': 0.1}}
    """
    result = {k: dict(v) if isinstance(v, dict) else v for k, v in data.items()}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key:
            raise ConfigError(f"an override must read key=value, got {assignment!r}; for example ppo.clip=0.1")
        node, parts = result, key.strip().split(".")
        for part in parts[:-1]:
            child = node.get(part)
            node[part] = dict(child) if isinstance(child, dict) else {}
            node = node[part]
        node[parts[-1]] = parse_yaml(text, where=key)
    return result


def build(cls: type[C], data: Any, *, where: str = "config") -> C:
    """Validate ``data`` as ``cls``; every problem becomes one readable line of a `ConfigError`."""
    if not isinstance(data, dict):
        raise ConfigError(f"{where} must be a mapping of settings, got {type(data).__name__}; write key: value lines")
    problems = list(_bools_for_numbers(cls, data, ""))
    if problems:
        raise ConfigError("\n".join(problems))
    try:
        return cls.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(cls, e) for e in error.errors())) from None


def read(path: Path, assignments: list[str]) -> dict[str, Any]:
    """The plain data of a config file with overrides applied."""
    data = parse_yaml(path.read_text(encoding="utf-8"), where=str(path.name)) or {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path.name} must be a mapping of settings, got {type(data).__name__}")
    return override(data, assignments)


def difference(a: Config, b: Config) -> list[tuple[str, Any, Any]]:
    """Settings in which two configs of one kind differ: ``(dotted name, value in a, value in b)``.

    Raises:
        ConfigError: they are of different kinds.
    """
    if type(a) is not type(b):
        raise ConfigError(f"difference() needs configs of one kind, got {type(a).__name__} and {type(b).__name__}")
    found = []
    for name in type(a).model_fields:
        mine, theirs = getattr(a, name), getattr(b, name)
        if isinstance(mine, Config) and isinstance(theirs, Config):
            found += [(f"{name}.{inner}", x, y) for inner, x, y in difference(mine, theirs)]
        elif mine != theirs:
            found.append((name, mine, theirs))
    return found


def diff_view(a: Config, b: Config) -> str:
    """`difference` as a text: one setting a line, what it is in each config, both under their names.

    >>> class Sketch(Config):
    ...     name: str = "x"
    ...     rate: float = 0.1
    >>> print(diff_view(Sketch(name="slow"), Sketch(name="fast", rate=1.0)))
    setting  slow  fast
    rate     0.1   1.0
    """
    heads = [str(getattr(config, "name", kind)) for config, kind in ((a, "a"), (b, "b"))]
    rows = [(name, str(x), str(y)) for name, x, y in difference(a, b) if name != "name"]
    table = [("setting", *heads), *rows]
    wide = [max(len(row[i]) for row in table) for i in (0, 1)]
    return "\n".join(f"{name:<{wide[0]}}  {x:<{wide[1]}}  {y}" for name, x, y in table)


def dump(config: Config) -> str:
    """The complete config as YAML, defaults included; reading it back gives an equal config."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=110)


def _bools_for_numbers(cls: type[Config], data: dict[str, Any], prefix: str) -> Iterator[str]:
    for name, value in data.items():
        field = cls.model_fields.get(name) if isinstance(name, str) else None
        if field is None:
            continue
        inner = config_class(field.annotation)
        if inner is not None and isinstance(value, dict):
            yield from _bools_for_numbers(inner, value, f"{prefix}{name}.")
        elif isinstance(value, bool) and field.annotation is not bool and bool not in get_args(field.annotation):
            yield f"{prefix}{name} must not be true or false, got {str(value).lower()}; {_hint(field)}"


def _hint(field: Any) -> str:
    default = field.get_default(call_default_factory=True)
    return f"the default is {default!r}" if not field.is_required() else "it has no default, so give it a value"


def _explain(cls: type[Config], error: Any) -> str:
    location = [str(part) for part in error["loc"]]
    owner: type[Config] | None = cls
    field, kept = None, []
    for part in location:
        if owner is not None and part in owner.model_fields:
            field = owner.model_fields[part]
            kept.append(part)
            owner_next = config_class(field.annotation)
            last_owner, owner = owner, owner_next
        elif part.isdigit() or (error["type"] in ("extra_forbidden", "missing") and part == location[-1]):
            kept.append(part)
            last_owner = owner or cls
    name = ".".join(kept) or "config"
    if error["type"] == "extra_forbidden":
        known = list((last_owner or cls).model_fields)
        near = difflib.get_close_matches(kept[-1], known, n=1, cutoff=0.6) or [
            k for k in known if k in kept[-1] or kept[-1] in k
        ]
        path = ".".join([*kept[:-1], near[0]]) if near else ""
        fix = f"did you mean {path}?" if near else f"known here: {', '.join(known)}"
        return f"{name} is not a field of {(last_owner or cls).__name__}; {fix}"
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "value_error":
        return message if not kept else f"{message}"
    given = "" if error["type"] == "missing" else f", got {error['input']!r}"
    return f"{name}: {message[0].lower()}{message[1:]}{given}" + (f"; {_hint(field)}" if field is not None else "")
