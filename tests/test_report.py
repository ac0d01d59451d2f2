"""Files of a report: the pictures that were asked for, all or none, drawn for whom they are."""

import jax
import matplotlib
import numpy as np
import pandas
import pytest
import xarray
from matplotlib.figure import Figure

import jaxota as jo
from jaxota import plots, reports, style
from jaxota.cli import main as cli


def _figure():
    with matplotlib.rc_context(style.rc_params()):
        figure, (axes,) = style.subplots(1, 3.0)
        axes.plot([1, 2], label="a")
        style.title_and_legend(figure, [axes], "told")
    return figure


# A report of one curve.
TOLD = jo.Report(
    name="told",
    caption="told: a <caption>",
    table=[["algorithm", "gap"], ["COTAF", "1 ± 0.1"]],
    remarks=["one", "two & three"],
    dataset=xarray.Dataset({"x": ("n", [1.0])}),
    csv=pandas.DataFrame({"a": [1], "b": [2]}),
    figure=_figure,
)
HEADS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF", "csv": b"a,b", "nc": b"\x89HDF"}


def test_the_pictures_that_were_asked_for_are_written(tmp_path):
    paths = reports.write(TOLD, tmp_path, ("pdf", "svg", "png"))
    assert [path.name for path in paths] == [
        f"told.{e}" for e in ("pdf", "svg", "png", "csv", "nc")
    ]
    for path in paths:
        assert path.read_bytes().startswith(HEADS[path.suffix[1:]])
    (one,) = reports.write(TOLD, tmp_path / "png", data=())
    assert one.name == "told.png"


def test_all_formats_appear_or_none(tmp_path, monkeypatch):
    def full(figure, path, **_):
        if path.suffix == ".svg":
            raise OSError(28, "No space left on device")
        path.write_bytes(b"new")

    reports.write(TOLD, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(Figure, "savefig", full)
    with pytest.raises(OSError, match="No space"):
        reports.write(TOLD, tmp_path, ("png", "pdf", "svg"))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("formats", ["gif", "", "png,,pdf", "PNG", "png pdf"])
def test_other_formats_are_refused(formats, capsys):
    assert cli.main(["show", "there", "--format", formats]) == 2
    assert "--format: must be of png, svg, pdf, with commas, got" in capsys.readouterr().err


def test_formats_are_typed_with_commas_and_written_once():
    typed = cli.parser().parse_args(["show", "there", "--format", "pdf, svg,png,pdf"])
    assert typed.format == ["pdf", "svg", "png"]
    assert cli.parser().parse_args(["show", "there"]).format == ["png"]


def test_fonts_of_a_paper_are_embedded_as_publishers_ask(tmp_path):
    """Type 42, and not Type 3, which many refuse."""
    (pdf,) = reports.write(TOLD, tmp_path, ("pdf",), "paper", ())
    assert b"/Type3" not in pdf.read_bytes() and b"/FontFile2" in pdf.read_bytes()


def _study(*sizes):
    """The dataset of a study of three algorithms over so many values of some axes."""
    names = [f"axis{n}" for n in range(len(sizes))]
    lead = {"algorithm": ["A", "B", "C"]}
    lead |= {name: np.arange(size) for name, size in zip(names, sizes, strict=True)}
    shape = (3, *sizes, 2, 4)
    gap = 1.0 + np.arange(np.prod(shape), dtype=float).reshape(shape)
    variables = {
        "gap": ((*lead, "trial", "evaluation"), gap),
        "participants": ((*lead, "trial", "round"), gap),
        "model": ((*lead, "trial", "parameter"), gap),
    }
    told = {"axes": names, "scores": ["gap"], "metric": "gap", "keep": "trials", "reference": "A"}
    return xarray.Dataset(variables, lead | {"evaluation": 1 + np.arange(4)}, told)


@pytest.mark.parametrize("sizes", [(), (2,), (2, 3), (2, 3, 2)])
def test_a_picture_for_a_paper_has_one_column(sizes):
    data, drawn = _study(*sizes), {}
    for name in ("screen", "paper"):
        with style.drawn_for(name):
            figure = plots.study(data, "gap", "a long title of many words " * 5)
            figure.draw_without_rendering()
        drawn[name] = figure
    assert drawn["paper"]._suptitle is None and drawn["screen"]._suptitle is not None
    assert drawn["paper"].get_figwidth() == 3.5
    assert drawn["screen"].get_figwidth() == (3.5 if len(sizes) < 2 else 7.16)
    images = {name: [a for a in f.axes if a.images] for name, f in drawn.items()}
    assert len(images["paper"]) == len(images["screen"])
    assert style.rc_params() is style.STYLE  # as before


def test_panels_stand_below_each_other_on_paper(task):
    run = jo.simulate(jax.random.key(0), jo.fedavg(1e-2, 2, 2), jo.Channel(), task, 3, 2)
    groups = {name: {"x": run, "y": run} for name in "ABC"}
    with style.drawn_for("paper"):
        paper = plots.panels(groups)
    screen = plots.panels(groups)
    for figure in (paper, screen):
        figure.draw_without_rendering()
    assert len({round(axes.get_position().x0, 3) for axes in paper.axes}) == 1
    assert len({round(axes.get_position().y0, 3) for axes in screen.axes}) == 1
    labels = [(axes.get_xlabel() != "", axes.get_ylabel() != "") for axes in paper.axes]
    assert labels == [(False, True), (False, True), (True, True)]
    labels = [(axes.get_xlabel() != "", axes.get_ylabel() != "") for axes in screen.axes]
    assert labels == [(True, True), (True, False), (True, False)]


def test_a_map_shows_what_did_not_diverge():
    """A row that diverges neither darkens the others nor is without a sign; values are printed."""
    data = _study(3, 4)
    gap = data.gap.copy(data=np.random.default_rng(0).uniform(1.0, 2.0, data.gap.shape))
    axis = data.gap.dims.index(data.attrs["axes"][0])
    rows = np.moveaxis(gap.values, axis, 0)
    rows[1], rows[2] = 1e20, np.inf
    figure = plots.study(data.assign(gap=gap), "gap")
    panel, *_, bar = figure.axes
    image = panel.images[0]
    assert image.norm.vmin >= 1.0 and image.norm.vmax <= 2.0
    assert len(panel.patches) == 4 and all(patch.get_hatch() for patch in panel.patches)
    printed = [text.get_text() for text in panel.texts]
    assert len(printed) == 8 and printed.count("1e+20") == 4
    assert "hatched: diverged" in bar.get_ylabel()


def test_an_accuracy_is_a_share_and_categories_are_points(monkeypatch):
    data = _study(2).rename({"gap": "accuracy"})
    values = np.random.default_rng(1).choice([0.98, 1.0, 0.6], data.accuracy.shape)
    data = data.assign(accuracy=data.accuracy.copy(data=values))
    data.attrs |= {"scores": ["accuracy"], "metric": "accuracy"}
    (name,) = data.attrs["axes"]
    parts = ["Fading(Rayleigh(), Inversion(threshold=0.1))", "NoFading()"]
    figure = plots.study(data.assign_coords({name: parts}))
    (axes,) = figure.axes
    assert {line.get_linestyle() for line in axes.lines} == {"None"}  # no line joins categories
    bars = [s for c in axes.containers for s in c.lines[2][0].get_segments()]
    assert np.max(bars, axis=0)[:, 1].max() <= 1.0
    words = [tick.get_text().replace("\n", " ") for tick in axes.get_xticklabels()]
    assert words == ["Rayleigh, Inversion threshold = 0.1", "No Fading"]
    panels = plots.study(data.assign_coords({name: ["0.1", "0.3"]}), by_algorithm=True)
    colours = {line.get_color() for axes in panels.axes for line in axes.lines}
    assert len(colours) == 2 and not colours & set(style.COLOURS)
