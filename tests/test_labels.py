"""Names stay names and labels stay text: on the terminal, in pictures, tables, pages and files."""

import re

import numpy as np
import pandas
import pytest
import xarray
from small_study import small

import jaxota as jo
from jaxota import plots, reports, style
from jaxota.cli import main as cli
from jaxota.cli import page
from jaxota.errors import visible

HOSTILE = [
    "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x9b2J", "a\rb", "a\nb", "a\tb", "\u202eevil",
    "[bold]", "[/x]", "[red]x[/red]", "COTAF [x]", "$\\foo$", "$x$", "\\$", "_hidden", "__", "",
    " ", "=1+1", "'=1", "+1", "-1", "@x", "a,b;c", 'q"q', "<b>&amp;", "</script>", "../../evil",
    "/etc/passwd", "θ̂ 🙂", "x" * 300, "%s {0} {x}", "NaN", "None", "1e3",
]  # fmt: skip
# No control character but the ends of lines, and the sequences by which rich draws bold letters.
UNSEEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def study():
    """Hostile labels of settings, and of algorithms."""
    return small.replace(
        algorithms={
            "COTAF [x]": jo.fedavg(0.05, 2),
            "COTAF [y]\x1b[31m $\\foo$": jo.fedavg(0.1, 2),
        },
        over=jo.axis("case", {"snr_db": list(range(len(HOSTILE)))}, HOSTILE),
        rounds=2,
        trials=2,
        name="hostile",
    )


@pytest.fixture(scope="module")
def swept(study, tmp_path_factory):
    out = tmp_path_factory.mktemp("hostile") / "in" / "out"
    study.run(out)
    return out


def test_a_store_gives_back_labels(swept, study):
    data = jo.open(swept)
    assert data.case.values.tolist() == HOSTILE
    assert data.algorithm.values.tolist() == list(study.algorithms)


def test_show_and_report_print_no_control_character(swept, study, capsys, recwarn):
    around = {path for path in swept.parents[1].rglob("*") if swept not in path.parents}
    assert cli.main(["show", str(swept)]) == cli.main(["report", str(swept)]) == 0
    printed, errors = capsys.readouterr()
    assert not UNSEEN.search(printed + errors)
    assert "COTAF [x]" in printed and r"COTAF [y]\x1b[31m $\foo$" in printed
    for label in HOSTILE[:14]:  # as long as it is on the screen
        assert visible(label).strip() in printed
    assert {"hostile.png", "hostile.csv", "report.html"} <= {p.name for p in swept.iterdir()}
    assert {path for path in swept.parents[1].rglob("*") if swept not in path.parents} == around
    assert not [w for w in recwarn if "Glyph" in str(w.message)]


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_a_study_of_a_file_with_hostile_labels(command, tmp_path, capsys):
    """The commands print no control character, and write inside their folder alone."""
    folder, out = tmp_path / "in", tmp_path / "in" / "out"
    folder.mkdir()
    path = folder / "own.py"
    path.write_text(
        "import jaxota as jo\n"
        "from small_study import small\n"
        f"labels = {HOSTILE!r}\n"
        "study = small.replace(algorithms={labels[0]: jo.fedavg(0.05, 2)}, rounds=2, trials=2,\n"
        "    over=jo.axis('case', {'snr_db': list(range(len(labels)))}, labels))\n",
        encoding="utf-8",
    )
    assert cli.main([command, f"{path}:study", "--out", str(out)]) == 0
    printed, errors = capsys.readouterr()
    assert not UNSEEN.search(printed + errors)
    assert {entry.name for entry in folder.iterdir()} <= {"own.py", "out", "__pycache__"}
    assert list(tmp_path.iterdir()) == [folder]
    if command == "sweep":
        assert jo.open(out).case.values.tolist() == HOSTILE
    else:
        with xarray.open_dataset(out / "study.nc", engine="h5netcdf") as data:
            assert data.case.values.tolist() == HOSTILE


def test_csv_and_netcdf_give_back_labels(swept, study, tmp_path):
    report = jo.study_report(jo.open(swept))
    csv, nc = reports.write(report, tmp_path, ("png", "svg", "pdf"))[-2:]
    rows = page._read_rows(csv)
    assert [*dict.fromkeys(rows.case)] == HOSTILE
    assert [*dict.fromkeys(rows.algorithm)] == list(study.algorithms)
    plain = pandas.read_csv(csv, dtype=str, keep_default_na=False)  # as a spreadsheet has it
    assert not plain.case.str.match(r"[=+\-@\t\r]").any()
    with xarray.open_dataset(nc, engine="h5netcdf") as data:
        assert data.case.values.tolist() == HOSTILE
        assert data.algorithm.values.tolist() == list(study.algorithms)
    words = page.write(tmp_path)[0].read_text(encoding="utf-8")
    assert words.count("</script>") == 2 and "<b>&amp;" not in words


@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize("first", range(0, len(HOSTILE), 7))
def test_pictures_show_labels_letter_by_letter(first):
    """But for an empty one, which has no entry."""
    run = jo.History({"gap": np.ones((2, 3))}, model=np.ones((2, 1)))
    labels = [label for label in HOSTILE[first : first + 7] if label]
    figure = plots.finals([1.0], {label: [run] for label in labels}, "gap", "x")
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [*map(style.plain, labels)]
    assert style.plain("$x$ _") == r"\$x\$ _" and style.plain("_x") == " _x"


@pytest.mark.parametrize("label", ["a\0b", "\0", "\ud800", "x\udfff"])
def test_labels_that_no_file_holds_are_refused(label):
    fedavg = jo.fedavg(0.05, 2)
    for changed in (
        {"algorithms": {label: fedavg}},
        {"over": jo.axis("case", {"snr_db": [1.0]}, [label])},
        {"over": jo.grid(fading={label: jo.rayleigh()})},
        {"metric": label},
    ):
        with pytest.raises(
            jo.InputError, match="must be text without NUL that UTF-8 can hold"
        ) as e:
            small.replace(**changed).run()
        assert "\n" not in str(e.value)


NAMES = [
    "", " ", ".", "..", ".hidden", "../../evil", "a/b", "a\\b", "/etc/passwd", "x" * 300, "é" * 101,
    "a\0", "\x1b[31m", "a\nb", "[bold]", "$x$", "=1", 3, None,
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_that_are_no_names_are_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = {"name": name}
    for act in (
        lambda: small.replace(**named).run("in"),
        lambda: small.replace(over=jo.axis(name, {"snr_db": [1.0]})).run("in"),
        lambda: reports.write(jo.Report(name, "", [], [], None, None, None), tmp_path / "in"),
    ):
        with pytest.raises(jo.InputError, match=r"must be (a name for files|words|text)") as e:
            act()
        assert "\n" not in str(e.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["fig1", "claims-regression", "K = 5, (N=20)+1", "θ_1", "(x)", "é" * 100]
)
def test_names_that_are_names_are_taken(name):
    assert small.replace(name=name).replace(trials=1) and len(name) <= 100
    from jaxota._core import inputs

    assert inputs.name("name", name) == name


def test_a_bar_and_an_error_print_no_control_character(tmp_path, capsys):
    path = tmp_path / "own.py"
    path.write_text('raise ValueError("\\x1b[31mred[/x]\\x07")')
    assert cli.main(["run", str(path), "--out", str(tmp_path / "out")]) == 2
    errors = capsys.readouterr().err
    assert not UNSEEN.search(errors) and r"\x1b[31mred[/x]\x07" in errors


ODD = {
    "description": ["[]", "3", "{", "null", 7, [1.0, 2.0]],
    "table": ["5", '"x"', "[1]", '[["a"], ["b", "c"]]', "{}", "nope", 3.5],
    "remarks": ["5", "{}", '"x"', "[[1], {}]", 2],
    "experiment": ["../../evil", "", 5, "a\nb"],
    "metric": [3, [1, 2]],
    "command": [5, "\x1b"],
    "title": [5, "<script>"],
    "algorithms": ["x", 3],
}


@pytest.mark.parametrize(("name", "value"), [(k, v) for k, vs in ODD.items() for v in vs])
def test_netcdf_files_with_odd_attributes_are_one_line(name, value, tmp_path, capsys):
    rows = pandas.DataFrame({"a": [1]})
    made = jo.Report("told", "told", [["a"], ["1"]], ["x"], xarray.Dataset({"x": 1}), rows, _figure)
    reports.write(made, tmp_path, (), data=("csv", "nc"), **{name: value})
    code = cli.main(["report", str(tmp_path)])
    printed, errors = capsys.readouterr()
    if name in ("remarks", "table", "description", "experiment") and value != "[[1], {}]":
        assert (code, printed) == (2, "") and errors.count("\n") == 1
        assert "told.nc is not what jaxota run wrote" in errors
    else:
        assert (code, errors) == (0, "")


def _figure():
    return None
