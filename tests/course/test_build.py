"""`make notebooks`: executed in order, normalised, rewritten only when something changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest

from ppo_lab.course.build import VIEW, find, normalise, rebuild, text_of

CELLS = (
    ("setup", "import os, sys\nfrom ppo_lab import course\nfrom course.probe_panel import panel"),
    ("panel", "panel()"),
    ("where", "os.getcwd()"),
    ("talk", "for i in range(3):\n    print(i)"),
)


def write(path: Path, cells: tuple[tuple[str, str], ...] = CELLS) -> Path:
    notebook = nbformat.v4.new_notebook()
    notebook["metadata"] = {"kernelspec": {"name": "python3", "display_name": "mine", "language": "python"}, "x": 1}
    for id, source in cells:
        cell = nbformat.v4.new_code_cell(source, id=id, metadata={"tags": ["row:A1"], "scrolled": True})
        notebook["cells"].append(cell)
    nbformat.write(notebook, path)
    return path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path], list[Path], str]:
    """A notebook that was rebuilt twice: its folder, what each rebuild wrote, and the text after the first."""
    import os

    root = tmp_path_factory.mktemp("repo")
    (root / "notebooks").mkdir()
    path = write(root / "notebooks" / "00_x.ipynb")
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parents[1])
    try:
        first = rebuild(root=root)
        text = path.read_text(encoding="utf-8")
        second = rebuild([path], root=root)
    finally:
        os.environ["PYTHONPATH"] = before
    return path, first, second, text


def test_second_rebuild_changes_no_byte(built: tuple[Path, list[Path], list[Path], str]) -> None:
    path, first, second, text = built
    assert first == [path] and second == [] and path.read_text(encoding="utf-8") == text


def test_outputs_are_stored_and_normalised(built: tuple[Path, list[Path], list[Path], str]) -> None:
    path, _, _, text = built
    notebook: Any = nbformat.read(path, as_version=4)
    assert [cell["execution_count"] for cell in notebook["cells"]] == [1, 2, 3, 4]
    assert [cell["id"] for cell in notebook["cells"]] == [id for id, _ in CELLS]
    assert notebook["cells"][0]["metadata"] == {"tags": ["row:A1"]}
    assert notebook["metadata"]["kernelspec"]["display_name"] == "Python 3"
    assert {*notebook["metadata"]} == {"kernelspec", "language_info"} and "version" not in str(notebook["metadata"])
    _, panel, where, talk = notebook["cells"]
    assert {*panel["outputs"][0]["data"]} == {"text/plain", "image/png"}
    assert where["outputs"][0]["data"]["text/plain"] == "'notebooks'", "runs in its own folder, without the machine's"
    assert [output["text"] for output in talk["outputs"]] == ["0\n1\n2\n"]
    assert str(path.parents[1]) not in text


def test_a_failing_cell_leaves_the_file_alone(tmp_path: Path) -> None:
    from nbclient.exceptions import CellExecutionError

    path = write(tmp_path / "00_x.ipynb", (("a", "1"), ("b", "1 / 0")))
    before = path.read_bytes()
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        rebuild([path])
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


def test_normalise_drops_what_differs_from_run_to_run() -> None:
    output = nbformat.v4.new_output("display_data", {VIEW: {"model_id": "1"}, "text/plain": "x"}, metadata={"a": 1})
    cell = nbformat.v4.new_code_cell("x", id="a", outputs=[output], metadata={"execution": {"t": "1"}, "tags": ["t"]})
    notebook = nbformat.v4.new_notebook(cells=[cell], metadata={"widgets": {"state": 1}, "ppo_lab": {"k": 1}})
    done = normalise(notebook)
    assert done["metadata"]["ppo_lab"] == {"k": 1} and "widgets" not in done["metadata"]
    assert done["cells"][0]["outputs"][0]["data"] == {"text/plain": "x"}
    assert done["cells"][0]["outputs"][0]["metadata"] == {} and done["cells"][0]["metadata"] == {"tags": ["t"]}
    assert text_of(done) == text_of(normalise(done)) and text_of(done).endswith("}\n")


def test_finding_notebooks(tmp_path: Path) -> None:
    for name in ("b.ipynb", "a.ipynb", ".c.ipynb", "d.txt"):
        (tmp_path / name).touch()
    a, b = tmp_path / "a.ipynb", tmp_path / "b.ipynb"
    assert find([tmp_path, b]) == [a, b] and find([b, tmp_path]) == [b, a]
    with pytest.raises(ValueError, match="is not there"):
        find([tmp_path / "e.ipynb"])
