"""How much is each ingredient of WISE worth, and what does a wrong noise variance cost?

jaxota run benchmarks/wise/ablation.py
"""

from typing import Any

import jax.numpy as jnp
import matplotlib
import numpy as np
import wise_map
from matplotlib.figure import Figure

import jaxota as jo


@jo.part
class WrongNoise:
    """A server that believes the noise variance σ² to be `factor` times its true value."""

    server: Any
    factor: float = jo.traced(above=0.0)

    def start(self, model):
        return self.server.start(model)

    def answer(self, memory, reports, noise, link):
        return self.server.answer(memory, reports, self.factor * noise, link)

    def __call__(self, seen, state):
        believed = jnp.sqrt(self.factor) * seen.deviation
        return self.server(seen.replace(deviation=believed), state)

    def output(self, model, memory):
        return self.server.output(model, memory)


def variants() -> dict[str, jo.Algorithm]:
    """Return WISE, WISE without each of its ingredients, and WISE with a wrong σ²."""
    wise = jo.wise(**wise_map.LOCAL)
    local: Any = wise.local
    uncoded = local.replace(coded=False)
    return {
        "WISE": wise,
        "no correction": wise.replace(local=local.replace(trusting=False)),
        "displacement sent": wise.replace(local=local.replace(gradients=False)),
        "no stride": wise.replace(local=local.replace(striding=False)),
        "nothing coded": wise.replace(local=uncoded),
        "coded means": wise.replace(local=uncoded, compress=jo.Centred(jo.Clipped())),
        "no clipping": wise.replace(compress=jo.Uncompressed(), precode=jo.Online()),
        "no error feedback": wise.replace(compress=jo.Clipped(leak=0.0)),
        "gain 1": wise.replace(server=jo.Innovations(gain=jo.Fixed(1.0))),
        "unbounded steps": wise.replace(server=jo.Innovations(jo.Whitening(longest=jnp.inf))),
        "no average": wise.replace(server=jo.Innovations(average=jo.Last())),
        "σ² halved": wise.replace(server=WrongNoise(wise.server, 0.5)),
        "σ² doubled": wise.replace(server=WrongNoise(wise.server, 2.0)),
        "σ² tenfold": wise.replace(server=WrongNoise(wise.server, 10.0)),
    }


@jo.experiment("WISE without each of its ingredients, and with a wrong noise variance")
def ablation(
    run, seed: int = 0, trials: int = 8, draws: int = wise_map.DRAWS, rotated: bool = True
) -> jo.Report:
    data, half = wise_map.draws(seed)[:draws], "rotated" if rotated else "not rotated"
    study = wise_map.study(
        "ablation", wise_map.MAP, variants(), data, seed, trials, rotated=rotated
    )
    by_draw = wise_map.relative_to_wise(run(study))
    ratios = by_draw.median("draw")
    rows = ratios.to_dataframe("ratio").reset_index().rename(columns={"algorithm": "with"})
    fields = ["users", "steps", "data_spread", "model_spread", "snr_db"]
    return jo.Report(
        name="ablation",
        caption="ablation: the final gap without an ingredient, or with a wrong σ², over that of "
        f"WISE, {ratios[0].size} regimes of synthetic regression, features {half}, {len(data)} "
        f"data draws, {trials} trials each, seed {seed}",
        table=wise_map.table(by_draw),
        remarks=[
            "A regime's ratio is the median over data draws of the gap without the ingredient over "
            "that of WISE on the same random numbers; worse is above 1.05, better below 0.95. "
            "Undecided: the 95 % interval of the median contains 1, or there are too few draws.",
            "The ratio is infinite in a regime where at least half of the draws have a trial that "
            "diverges. Such a regime counts as worse, and is excluded from the other columns.",
        ],
        dataset=ratios.to_dataset(name="ratio"),
        csv=rows[["with", *fields, "ratio"]],
        figure=lambda: _figure(ratios),
    )


def _figure(ratios) -> Figure:
    """Draw a dot for each regime, by variant and SNR, and their geometric means."""
    style, names = jo.style, ratios.algorithm.values
    with matplotlib.rc_context(style.rc_params()):
        height = 3.6 if style.on_paper() else 2.6
        figure = Figure(figsize=(style.width(2), height), dpi=300, layout="constrained")
        axes = figure.subplots()
        offsets = np.linspace(-0.4, 0.4, 2 * ratios.snr_db.size + 1)[1::2]
        for offset, snr, colour in zip(offsets, ratios.snr_db.values, style.COLOURS, strict=False):
            values = ratios.sel(snr_db=snr).values.reshape(len(names), -1)
            x = np.arange(len(names)) + offset
            axes.plot(x, values, ".", ms=2, color=colour, alpha=0.5, mew=0)
            means = [wise_map.geometric_mean(row) for row in values]
            axes.plot(x, means, "_", ms=7, mew=1.5, color=colour, label=f"{snr:g} dB")
            for diverging in x[~np.isfinite(values).all(1)]:  # off the upper edge
                edge = axes.get_xaxis_transform()
                axes.plot([diverging], [0.97], "^", ms=3, color=colour, transform=edge)
        axes.axhline(1.0, color="black", lw=0.6)
        axes.set_yscale("log")
        axes.set_ylabel("gap / gap of WISE")
        if style.on_paper():
            axes.set_xticks(range(len(names)), names, rotation=90)
        else:
            axes.set_xticks(range(len(names)), [name.replace(" ", "\n") for name in names])
        figure.legend(loc="outside lower center", ncols=3 if style.on_paper() else 5)
        style.figure_title(
            figure,
            "WISE without each of its ingredients, or with a wrong σ²: regimes (dots), "
            "geometric means, and where some diverge (triangles)",
        )
    return figure
