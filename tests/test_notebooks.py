"""Run the notebooks from top to bottom; they are stored without outputs."""

import re
from pathlib import Path

import nbclient
import nbformat
import pytest

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
FEW = {
    r"\btrials=\d+": "trials=3",
    r"\brounds=\d+": "rounds=4",
    r"\bevery=\d+": "every=2",
    r"--trials \d+": "--trials 3",
    r"--rounds \d+": "--rounds 4",
    r"\(100, 1\)": "(3, 1)",  # as many models to start from as trials
    r"\bDRAWS = \d+": "DRAWS = 2",
    r"\[1, 10, 100, 400\]": "[1, 3]",
}


def _smaller(cells):
    """Reduce trials and rounds in place; fail if there are none to reduce."""
    found = dict.fromkeys(FEW, 0)
    for cell in cells:
        for many, few in FEW.items():
            cell.source, count = re.subn(many, few, cell.source)
            found[many] += count
    assert min(found[r"\btrials=\d+"], found[r"\brounds=\d+"]) >= 2
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")  # the kernel's machinery, not ours
def test_notebook_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)
    _smaller(cells)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=where).execute()
    pictures = [out for cell in cells for out in cell.outputs if "image/png" in out.get("data", {})]
    assert len(pictures) >= 2


def test_every_notebook_has_the_same_install_cell():
    """The cell installs jaxota only if it cannot be imported."""
    first = set()
    for path in NOTEBOOKS:
        cells = nbformat.read(path, as_version=4).cells
        (install,) = [cell.source for cell in cells if "%pip" in cell.source]
        first.add(install)
    assert len(first) == 1 and "except ImportError:" in first.pop()


def test_every_reduction_is_used():
    found = dict.fromkeys(FEW, 0)
    for path in NOTEBOOKS:
        for many, count in _smaller(nbformat.read(path, as_version=4).cells).items():
            found[many] += count
    assert len(NOTEBOOKS) == 6 and all(found.values())
