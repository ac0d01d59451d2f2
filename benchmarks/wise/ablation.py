"""What `jaxota run ablation` runs and shows: WISE without each ingredient, or with a wrong σ²."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib.figure import Figure

from jaxota import style
from jaxota._core.part import Memory, Scalar, Traced, Vector, part, traced
from jaxota._core.state import State
from jaxota.algorithms import Algorithm
from jaxota.cli.report import attributes
from jaxota.experiments import wise
from jaxota.experiments.wise import REGIME
from jaxota.experiments.wise_report import geometric
from jaxota.stages.compress import Centred, Clipped
from jaxota.stages.fading import Link
from jaxota.stages.precode import Online
from jaxota.stages.server import Aggregate, Server
from jaxota.stages.wise import Fixed, Innovations, Last
from jaxota.study.executor import StudyJob


@part
class Misled:
    """A server that takes σ² to be so many times what it is.

    Attributes:
        server: which.
        times: how many.
    """

    server: Server
    times: Traced[Scalar] = traced(above=0.0)

    def start(self, model: Vector) -> Memory:
        return self.server.start(model)

    def answer(self, memory: Memory, reports: dict[str, Any], noise: Scalar, link: Link) -> Any:
        return self.server.answer(memory, reports, self.times * noise, link)

    def __call__(self, seen: Aggregate, state: State) -> tuple[Vector, Memory]:
        believed = jnp.sqrt(self.times) * seen.deviation
        return self.server(seen.replace(deviation=believed), state)

    def output(self, model: Vector, memory: Memory) -> Vector:
        return self.server.output(model, memory)


def algorithms() -> dict[str, Algorithm]:
    """WISE, and what is left of it without each of its ingredients, or with a wrong σ²."""
    whole = wise.ours()["WISE"]
    local: Any = whole.local
    return {
        "WISE": whole,
        "no correction": whole.replace(local=local.replace(trusting=False)),
        "displacement sent": whole.replace(local=local.replace(gradients=False)),
        "no stride": whole.replace(local=local.replace(striding=False)),
        "no coded means": whole.replace(compress=Clipped()),
        "no clipping": whole.replace(compress=Centred(), precode=Online()),
        "no error feedback": whole.replace(compress=Centred(Clipped(leak=0.0))),
        "gain 1": whole.replace(server=Innovations(gain=Fixed(1.0))),
        "no average": whole.replace(server=Innovations(average=Last())),
        "σ² halved": whole.replace(server=Misled(whole.server, 0.5)),
        "σ² doubled": whole.replace(server=Misled(whole.server, 2.0)),
        "σ² tenfold": whole.replace(server=Misled(whole.server, 10.0)),
    }


def job(seed: int, trials: int) -> StudyJob:
    """What the driver runs: the map at one step size."""
    return StudyJob(wise.study(seed, trials, algorithms(), "ablation", (wise.STEP_SIZE,)))


@dataclasses.dataclass(frozen=True)
class Ablation:
    """Ratios of the gap without an ingredient to that of WISE."""

    name = "ablation"

    seed: int
    trials: int
    ratios: Any  # [algorithm, shape, spread, snr_db], median over draws

    @classmethod
    def of(cls, seed: int, trials: int, dataset: Any) -> "Ablation":
        """From what the job of this seed and so many trials found."""
        found = wise.gaps(wise.labelled(dataset)).isel(round=-1, step_size=0, drop=True)
        ratios = found.drop_sel(algorithm="WISE") / found.sel(algorithm="WISE", drop=True)
        return cls(seed, trials, ratios.median("draw").load())

    def caption(self) -> str:
        return (
            "ablation: the final gap without an ingredient, or with a wrong σ², over that of WISE, "
            f"{self.ratios[0].size} regimes of synthetic regression, {wise.DRAWS} data draws, "
            f"{self.trials} trials each, seed {self.seed}"
        )

    def table(self):
        from rich.table import Table

        grid = Table()
        grid.add_column("WISE with")
        headings = "geometric mean", "worse in", "better in", "worst", "best", "diverges in"
        for heading in headings:
            grid.add_column(heading, justify="right")
        for ratio in self.ratios:
            there = ratio.values[np.isfinite(ratio.values)]
            grid.add_row(
                str(ratio.algorithm.values),
                f"{geometric(there):.3g}",
                f"{int((ratio > 1.05).sum())} of {ratio.size}",
                f"{int((ratio < 0.95).sum())}",
                f"{there.max():.3g}" if there.size else "–",
                f"{there.min():.3g}" if there.size else "–",
                f"{ratio.size - there.size}",
            )
        return grid

    def remarks(self) -> list[str]:
        return [
            "A regime's ratio is the median over data draws of the gap without the ingredient over "
            "that of WISE on the same random numbers; worse is above 1.05, better below 0.95.",
            "Where more than half of the draws have a trial that diverges the ratio is infinite: "
            "such a regime is worse, and in none of the other numbers.",
        ]

    @property
    def regimes(self) -> wise.Map:
        return wise.MAPS[self.name]

    def figure(self):
        """Of each ingredient a point for each regime, by SNR, and their geometric mean."""
        with matplotlib.rc_context(style.rc_params()):
            size = style.width(2), 3.6 if style.on_paper() else 2.6
            figure = Figure(figsize=size, dpi=300, layout="constrained")
            axes = figure.subplots()
            width = 0.8 / len(self.regimes.snr_db)
            for place, snr in enumerate(self.regimes.snr_db):
                for x, ratio in enumerate(self.ratios):
                    values = ratio.sel(snr_db=snr).values.ravel()
                    at = x + (place - (len(self.regimes.snr_db) - 1) / 2) * width
                    colour = style.COLOURS[place % len(style.COLOURS)]
                    label = f"{snr:g} dB" if x == 0 else None
                    spots = np.full(values.size, at)
                    there = np.isfinite(values)
                    axes.plot(spots, values, ".", ms=2, color=colour, alpha=0.5, mew=0)
                    mean = geometric(values)
                    axes.plot([at], [mean], "_", ms=7, mew=1.5, color=colour, label=label)
                    if not there.all():  # off the upper edge
                        edge = axes.get_xaxis_transform()
                        axes.plot([at], [0.97], "^", ms=3, color=colour, transform=edge)
            axes.axhline(1.0, color="black", lw=0.6)
            axes.set_yscale("log")
            axes.set_ylabel("gap / gap of WISE")
            _label(figure, axes, [str(name) for name in self.ratios.algorithm.values])
            style.figure_title(
                figure,
                "WISE without each of its ingredients, or with a wrong σ²: regimes (dots), "
                "geometric means, and where some diverge (triangles)",
            )
        return figure

    def rows(self):
        """The rows of the CSV, header first: one for each ingredient and regime."""
        yield ["with", "users", "steps", "data_spread", "model_spread", "snr_db", "ratio"]
        found = self.ratios.transpose("algorithm", *REGIME)
        for (name, shape, spread, snr), value in np.ndenumerate(found.values):
            users, steps, *_ = self.regimes.shapes[shape]
            numbers = users, steps, *self.regimes.spreads[spread], self.regimes.snr_db[snr]
            yield [found.algorithm.values[name], *(f"{x:g}" for x in numbers), f"{value:.9g}"]

    def dataset(self):
        import xarray  # slow to import, needed here alone

        told = attributes("ablation", self.seed, self.caption())
        return xarray.Dataset({"ratio": self.ratios}, attrs=told)


def _label(figure: Figure, axes: Any, names: list[str]) -> None:
    """Names below the points, and what the colours are, where it covers none."""
    if style.on_paper():
        axes.set_xticks(range(len(names)), names, rotation=90)
    else:
        axes.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names])
    figure.legend(loc="outside lower center", ncols=3 if style.on_paper() else 5)
