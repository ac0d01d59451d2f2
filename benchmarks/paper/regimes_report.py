"""What is told and shown of `jaxota run regimes`."""

import dataclasses
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from jaxota import style
from jaxota.cli.report import attributes
from jaxota.experiments import regimes
from jaxota.experiments.draws import median_interval

PLAIN = ["noisy FedAvg", "COTAF", "BAAF", "COBAAF"]
EQUAL = ["noisy FedAvg", "COTAF", "BAAF", regimes.HALF]
RATIOS = {"BAAF": "BAAF", "COBAAF": "COBAAF", "COBAAF_half": regimes.HALF}
SHORT = {"noisy FedAvg": "n", "COTAF": "T", "BAAF": "B", "COBAAF": "C"}
BOUND = 1.0  # of the colours, in decades


@dataclasses.dataclass(frozen=True)
class Regimes:
    """Maps over SNR and spreads."""

    name = "regimes"

    seed: int
    trials: int
    gaps: Any  # [algorithm, spreads, snr_db, draw]

    @classmethod
    def of(cls, seed: int, trials: int, dataset: Any) -> "Regimes":
        """From what the job of this seed and so many trials found."""
        return cls(seed, trials, regimes.final_gaps(dataset).load())

    @property
    def _best(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        return {
            "as the paper counts": regimes.best(self.gaps, PLAIN),
            "equal channel uses and power": regimes.best(self.gaps, EQUAL),
        }

    def caption(self) -> str:
        return (
            f"regimes: final gaps under the online precoder, synthetic regression, N = "
            f"{regimes.USERS}, K = {regimes.STEPS}, {regimes.ROUNDS} rounds, SNR per vector, "
            f"{self.gaps.spreads.size} spreads × {self.gaps.snr_db.size} SNRs, "
            f"{self.gaps.sizes['draw']} data draws, {self.trials} trials each, seed {self.seed}"
        )

    def table(self):
        """Of how many regimes each is the best, and how many of them are beyond doubt."""
        from rich.table import Table

        grid = Table()
        grid.add_column("lowest median gap in")
        for name in (*PLAIN, "all diverge"):
            grid.add_column(name, justify="right")
        for label, (first, sure) in self._best.items():
            counts = [
                f"{int((first == n).sum())} ({int(((first == n) & sure).sum())})"
                for n in range(len(PLAIN))
            ]
            grid.add_row(label, *counts, str(int((first < 0).sum())))
        return grid

    def remarks(self) -> list[str]:
        lines = [
            "( ): of these regimes, those where the 95 % interval of the median over data draws of "
            "log10(gap of the second / gap of the best), paired, leaves out 0. The best is chosen "
            "by the same draws.",
            "Equal channel uses and power: COBAAF has half of the power for each of its two blocks "
            f"and is read at round {regimes.ROUNDS // 2}, the others at round {regimes.ROUNDS}: "
            "one total power in a round, as many blocks sent in all, and over the whole run half "
            "of the others' energy.",
        ]
        for label in RATIOS:
            found = regimes.ratio(self.gaps, "COTAF", RATIOS[label])
            middle, sure = np.median(found, -1), regimes.settled(found)
            name = "COBAAF at equal channel uses and power" if "half" in label else label
            lines.append(
                f"{name}: below COTAF in {int((sure & (middle > 0)).sum())} of {middle.size} "
                f"regimes, above it in {int((sure & (middle < 0)).sum())}, and in "
                f"{int((~sure).sum())} the interval includes 0."
            )
        lost = int(np.isinf(self.gaps.values).any(-1).any(0).sum())
        if lost:
            lines.append(
                f"In {lost} regimes a trial diverged on some draw: its algorithm's gap counts as "
                "infinite there, and two of such as equal."
            )
        return lines

    def figure(self):
        """Columns: the best, both ratios, and the same at equal channel uses; rows: both maps."""
        best = list(self._best.values())
        ratios = [regimes.ratio(self.gaps, "COTAF", name) for name in RATIOS.values()]
        titles = (
            "lowest gap",
            "COTAF / BAAF",
            "COTAF / COBAAF",
            "lowest gap,\nequal budget",
            "COTAF / COBAAF,\nequal budget",
        )
        with matplotlib.rc_context(style.rc_params()):
            figure, grid = _grid(len(titles))
            for row, (label, swept, place) in zip(grid, self._maps(), strict=True):
                for column, found in ((0, best[0]), (3, best[1])):
                    _winners(row[column], *(each[place] for each in found))
                for column, values in zip((1, 2, 4), ratios, strict=True):
                    image = _ratios(row[column], values[place])
                row[0].set_yticks(range(len(swept)), [f"{x:g}" for x in swept])
                for axes in row if style.on_paper() else row[:1]:
                    axes.set_ylabel(label)
            for axes, title in zip(grid[0], titles, strict=True):
                axes.set_title(title, fontsize=7)
            snrs = self.gaps.snr_db.values
            for axes in grid[:, -1] if style.on_paper() else grid[-1]:
                axes.set_xticks(range(len(snrs))[::2], [f"{x:g}" for x in snrs[::2]])
                axes.set_xlabel("SNR (dB)")
            bar = figure.colorbar(image, ax=grid, pad=0.01, extend="both", aspect=30)
            bar.set_label("log$_{10}$ of the ratio of final gaps")
            _explain(figure)
        return figure

    def _maps(self) -> list[tuple[str, tuple[float, ...], list[int]]]:
        """Of each map what is swept, and where along the spreads it lies."""
        every = regimes.spreads()
        models = [(regimes.SPREAD_OF_DATA, x) for x in regimes.MODEL_SPREADS]
        data = [(x, regimes.SPREAD_OF_MODELS) for x in regimes.DATA_SPREADS]
        return [
            ("model_spread", regimes.MODEL_SPREADS, [every.index(pair) for pair in models]),
            ("data_spread", regimes.DATA_SPREADS, [every.index(pair) for pair in data]),
        ]

    def rows(self):
        """The rows of the CSV, header first: one for each regime and ratio, and for who is best."""
        regime = "data_spread", "model_spread", "snr_db"
        yield [*regime, "quantity", "value", "ci_low", "ci_high", "decided"]
        places = list(np.ndindex(*self.gaps.shape[1:3]))
        for label, name in RATIOS.items():
            found = regimes.ratio(self.gaps, "COTAF", name)
            sure = regimes.settled(found)
            for place in places:
                low, high, _ = median_interval(found[place], regimes.LEVEL)
                numbers = [f"{x:.6g}" for x in (float(np.median(found[place])), low, high)]
                quantity = f"log10(COTAF/{label})"
                yield [*self._regime(place), quantity, *numbers, _word(sure[place])]
        names = "best", "best_equal"
        for quantity, (first, sure) in zip(names, self._best.values(), strict=True):
            for place in places:
                name = [*PLAIN, "none"][first[place]]
                yield [*self._regime(place), quantity, name, "", "", _word(sure[place])]

    def _regime(self, place: tuple[int, ...]) -> list[str]:
        numbers = (*regimes.spreads()[place[0]], self.gaps.snr_db.values[place[1]])
        return [f"{x:g}" for x in numbers]

    def dataset(self):
        """Final gaps, and of all draws the ratios' logarithms."""
        import xarray  # slow to import, needed here alone

        axes = self.gaps.dims[1:]
        found: dict[str, Any] = {"gap": self.gaps}
        for label, name in RATIOS.items():
            found[f"log10_COTAF_over_{label}"] = axes, regimes.ratio(self.gaps, "COTAF", name)
        told = attributes("regimes", self.seed, self.caption())
        return xarray.Dataset(found, attrs=told)


def _grid(columns: int) -> tuple[Figure, Any]:
    """Panels [map, column], which on paper stand below each other."""
    if style.on_paper():
        figure = Figure(figsize=(style.width(1), 8.0), dpi=300, layout="constrained")
        return figure, figure.subplots(columns, 2, sharex=True, sharey="col").T
    figure = Figure(figsize=(style.width(2), 3.6), dpi=300, layout="constrained")
    return figure, figure.subplots(2, columns, sharex=True, sharey="row")


def _word(sure: Any) -> str:
    return "yes" if sure else "no"


def _colours() -> list[str]:
    return [look.colour for look in style.looks(PLAIN).values()]


def _winners(axes: Any, first: np.ndarray, sure: np.ndarray) -> None:
    shown = ListedColormap(["#bbbbbb", *_colours()])
    axes.imshow(first + 1, cmap=shown, vmin=-0.5, vmax=4.5, aspect="auto", origin="lower")
    for (y, x), number in np.ndenumerate(first):
        letter = SHORT[PLAIN[number]] if number >= 0 else ""
        axes.text(x, y, letter, ha="center", va="center", fontsize=5, color="white")
    _hatch(axes, ~sure, "white")


def _ratios(axes: Any, values: np.ndarray) -> Any:
    """The median over draws [spreads, snr_db] of values [spreads, snr_db, draw]."""
    middle = np.median(values, -1)
    norm = Normalize(-BOUND, BOUND)
    image = axes.imshow(middle, cmap="PuOr", norm=norm, aspect="auto", origin="lower")
    _hatch(axes, ~regimes.settled(values), "black")
    return image


def _hatch(axes: Any, where: np.ndarray, colour: str) -> None:
    for y, x in np.argwhere(where):
        axes.add_patch(
            Rectangle(
                (x - 0.5, y - 0.5), 1, 1, fill=False, hatch="//////", lw=0, ec=colour, alpha=0.6
            )
        )


def _explain(figure: Figure) -> None:
    names = [f"{SHORT[name]}: {name}" for name in PLAIN]
    pairs = zip(names, _colours(), strict=True)
    handles = [Patch(facecolor=colour, label=name) for name, colour in pairs]
    handles.append(Patch(facecolor="white", edgecolor="black", hatch="//////", label="undecided"))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=style.columns(5, 2), handlelength=1.5
    )
