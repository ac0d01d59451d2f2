"""Maps of the lowest gap and of ratios of gaps, over SNR and spreads."""

import matplotlib
import numpy as np
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

import jaxota as jo

LETTERS = {"noisy FedAvg": "n", "COTAF": "T", "BAAF": "B", "COBAAF": "C"}
TITLES = (
    "lowest gap",
    "COTAF / BAAF",
    "COTAF / COBAAF",
    "lowest gap,\nequal budget",
    "COTAF / COBAAF,\nequal budget",
)
DECADES = 1.0  # where the colours of the ratios end


def draw(maps, snr_db, best, ratios, decided):
    """Draw a row for each map; hatched regimes are undecided."""
    leaders, values = list(best.values()), list(ratios.values())
    with matplotlib.rc_context(jo.style.rc_params()):
        figure, grid = _panels()
        for row, (label, swept, places) in zip(grid, maps, strict=True):
            for column, (first, sure) in zip((0, 3), leaders, strict=True):
                _draw_lowest(row[column], first[places], sure[places])
            for column, ratio in zip((1, 2, 4), values, strict=True):
                image = _draw_ratio(row[column], ratio[places], decided(ratio[places]))
            row[0].set_yticks(range(len(swept)), [f"{x:g}" for x in swept])
            for axes in row if jo.style.on_paper() else row[:1]:
                axes.set_ylabel(label)
        for axes, title in zip(grid[0], TITLES, strict=True):
            axes.set_title(title, fontsize=7)
        for axes in grid[:, -1] if jo.style.on_paper() else grid[-1]:
            axes.set_xticks(range(len(snr_db))[::2], [f"{x:g}" for x in snr_db[::2]])
            axes.set_xlabel("SNR (dB)")
        bar = figure.colorbar(image, ax=grid, pad=0.01, extend="both", aspect=30)
        bar.set_label("log$_{10}$ of the ratio of final gaps")
        pairs = zip(LETTERS.items(), _colours(), strict=True)
        handles = [Patch(facecolor=c, label=f"{letter}: {name}") for (name, letter), c in pairs]
        undecided = {"facecolor": "white", "edgecolor": "black", "hatch": "//////"}
        handles.append(Patch(**undecided, label="undecided"))
        across = jo.style.columns(5, 2)
        figure.legend(handles=handles, loc="outside lower center", ncols=across, handlelength=1.5)
    return figure


def _panels():
    """Panels [map, column]; on paper the columns stand below each other."""
    if jo.style.on_paper():
        figure = Figure(figsize=(jo.style.width(1), 8.0), dpi=300, layout="constrained")
        return figure, figure.subplots(len(TITLES), 2, sharex=True, sharey="col").T
    figure = Figure(figsize=(jo.style.width(2), 3.6), dpi=300, layout="constrained")
    return figure, figure.subplots(2, len(TITLES), sharex=True, sharey="row")


def _colours():
    return [look.colour for look in jo.style.looks(LETTERS).values()]


def _draw_lowest(axes, first, sure):
    """Colour and letter of the algorithm with the lowest gap [spread, snr_db]; grey for none."""
    colours = ListedColormap(["#bbbbbb", *_colours()])
    axes.imshow(first + 1, cmap=colours, vmin=-0.5, vmax=4.5, aspect="auto", origin="lower")
    for (y, x), number in np.ndenumerate(first):
        letter = list(LETTERS.values())[number] if number >= 0 else ""
        axes.text(x, y, letter, ha="center", va="center", fontsize=5, color="white")
    _hatch(axes, ~sure, "white")


def _draw_ratio(axes, ratio, sure):
    """Median over draws of a ratio [spread, snr_db, draw]."""
    norm = Normalize(-DECADES, DECADES)
    image = axes.imshow(np.median(ratio, -1), cmap="PuOr", norm=norm, aspect="auto", origin="lower")
    _hatch(axes, ~sure, "black")
    return image


def _hatch(axes, where, colour):
    look = {"fill": False, "hatch": "//////", "lw": 0, "ec": colour, "alpha": 0.6}
    for y, x in np.argwhere(where):
        axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **look))
