"""Where the shipped configs are, from any folder: inside the installed package, or at the top of a checkout."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def config_root() -> Path:
    """The folder of shipped configs: ``ppo_lab/configs`` in a wheel, ``configs`` beside the package in a checkout."""
    shipped = PACKAGE / "configs"
    return shipped if shipped.is_dir() else PACKAGE.parent / "configs"


def config_names(root: Path | None = None) -> list[str]:
    """Names of all shipped configs, as ``rlhf/demo``."""
    root = root or config_root()
    return sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.rglob("*.yaml"))


def find_config(name: str | Path, root: Path | None = None) -> Path:
    """The file a config is in, given its name (``rlhf/demo``) or a path to a file of your own (``mine.yaml``).

    A file of that path wins over a shipped config of that name. Raises `ValueError` with the nearest names otherwise.
    """
    root = root or config_root()
    for candidate in (Path(name), root / f"{name}.yaml", root / name):
        if candidate.is_file():
            return candidate.resolve()
    names = config_names(root)
    near = get_close_matches(str(name).removesuffix(".yaml"), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"shipped configs: {', '.join(names) or 'none'}"
    raise ValueError(f"config {str(name)!r} is neither a file nor the name of a shipped config; {hint}")
