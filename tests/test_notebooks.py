"""Notebooks run from top to bottom, and are kept without their outputs."""

import re
from pathlib import Path

import nbclient
import nbformat
import pytest

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def _smaller(cells):
    """Few trials of few rounds, all else as it stands; fails where there are no such numbers."""
    few = {"trials": "trials=3, calibration_trials=5", "rounds": "rounds=4", "every": "every=2"}
    found = dict.fromkeys(few, 0)
    for cell in cells:
        for name, less in few.items():
            cell.source, count = re.subn(rf"\b{name}=\d+\b", less, cell.source)
            found[name] += count
    assert found["trials"] == found["rounds"] >= 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")  # the kernel's machinery, not ours
def test_notebook_runs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)
    _smaller(cells)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    pictures = [out for cell in cells for out in cell.outputs if "image/png" in out.get("data", {})]
    assert pictures


def test_there_are_notebooks():
    assert NOTEBOOKS
