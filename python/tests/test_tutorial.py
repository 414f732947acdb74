"""The notebook of the tutorial: each cell runs, in order, in one namespace."""

import json
import os
import pathlib

import pytest

NOTEBOOK = pathlib.Path(__file__).parents[1] / "examples" / "tutorial.ipynb"


def cells():
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return notebook, ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_is_stored_without_outputs():
    notebook, sources = cells()
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len(sources) >= 10
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        assert cell["cell_type"] == "markdown" or (cell["outputs"], cell["execution_count"]) == ([], None)


@pytest.mark.skipif("ZEROFLEET_PROGRAMS" not in os.environ, reason="needs ZEROFLEET_PROGRAMS")
def test_every_cell_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for number, source in enumerate(cells()[1]):
        exec(compile(source, f"code cell {number}", "exec"), namespace)
    assert namespace["run"].weights, "no weights were published"
    assert namespace["position"].is_over
