"""Models as plain Hugging Face folders, whole under their name or not there at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .build import save_model

QUALITY = "quality.json"


def save_folder(folder: Path, model: Any, tokenizer: Any, figures: Mapping[str, Any]) -> None:
    """Model, tokenizer and ``quality.json`` (what was measured while it was made), written aside and renamed."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    save_model(model, tokenizer, partial)
    (partial / QUALITY).write_text(json.dumps(figures, indent=1), encoding="utf-8")
    os.replace(partial, folder)


def read_figures(folder: Path | str) -> dict[str, Any] | None:
    """What `save_folder` noted; None for a folder or hub name without."""
    path = Path(folder) / QUALITY
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
