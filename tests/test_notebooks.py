"""Run the notebooks from top to bottom; they are stored without outputs."""

import re
import sys
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


def test_the_install_cell_stops_with_one_line(tmp_path, monkeypatch, capsys):
    """Where jaxota is missing and there is nothing to install it from."""
    from IPython.core.interactiveshell import InteractiveShell

    (cell,) = [c.source for c in nbformat.read(NOTEBOOKS[0], 4).cells if "%pip" in c.source]
    monkeypatch.setitem(sys.modules, "jaxota", None)
    monkeypatch.chdir(tmp_path)
    shell = InteractiveShell()
    assert not shell.run_cell(cell.replace("%matplotlib inline", "")).success
    said = capsys.readouterr()
    assert (said.out + said.err).strip().count("\n") == 0 and "upload its wheel" in said.out
    installed = []
    shell.register_magic_function(installed.append, magic_name="pip")
    for source, wanted in {
        "": '"jaxota-0.1.0-py3-none-any.whl[datasets]"',
        "/drive/jaxota": '"/drive/jaxota[datasets]"',
        "git+https://x/y": '"jaxota[datasets] @ git+https://x/y"',
    }.items():
        (tmp_path / "jaxota-0.1.0-py3-none-any.whl").touch()
        text = cell.replace('SOURCE = ""', f'SOURCE = "{source}"')
        shell.run_cell(text.replace("%matplotlib inline", ""))
        assert installed[-1] == f"install -q {wanted}"


def test_every_reduction_is_used():
    found = dict.fromkeys(FEW, 0)
    for path in NOTEBOOKS:
        for many, count in _smaller(nbformat.read(path, as_version=4).cells).items():
            found[many] += count
    assert len(NOTEBOOKS) == 6 and all(found.values())
