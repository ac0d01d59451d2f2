"""Which changes to WISE help on draws that were not used to choose them?

    python benchmarks/wise/design.py [--short]

Each change beside WISE as it is, on the map and off it: on draws to choose on, and on draws to
confirm on, neither of which is a draw of `jaxota run wise`, `rivals`, `offmap` or `ablation`.
"""

import bench

CHOOSE, CONFIRM = range(0, 8), range(500, 508)


def changes():
    """What was tried, by name."""
    import jax.numpy as jnp

    import jaxota as jo
    from jaxota.experiments import wise

    @jo.part
    class Kept:
        """`Switching` at another rate, with a share that is kept as at most 0.9."""

        rate: float = jo.traced(at_least=0.0)

        start = jo.Switching.start

        def __call__(self, y, ahead, memory):
            share, after = jo.Switching(self.rate)(y, ahead, memory)
            return share, after | {"share": jnp.minimum(share, 0.9)}

    @jo.part
    class Apart:
        """The coded mean, which has no noise, and all else follow by gains and averages apart."""

        one: jo.Innovations = jo.Innovations()

        answer, output = jo.Innovations.answer, jo.Innovations.output

        def start(self, model):
            memory = self.one.start(model)
            names = ("gain", "average")
            return memory | {k: (memory[k], memory[k]) for k in names}

        def __call__(self, seen, state):
            old, y = state.server, seen.estimate - state.model
            noise = (y.size - 1) * seen.deviation**2
            norms, means = seen.side.reports["norm"], seen.side.reports["mean"]
            apart = seen.link.mean(norms**2) - jnp.maximum(jnp.sum(y**2) - noise, 0.0)
            sizes = jnp.sqrt(y.size) * jnp.abs(means)
            rest = jnp.sqrt(jnp.maximum(norms**2 - sizes**2, 0.0))
            told = (seen.link.mean(sizes), 0.0 * noise), (seen.link.mean(rest), noise)
            model, output, gains, averages = state.model, old["output"], [], []
            for n, (part, (size, variance)) in enumerate(zip(_parted(y), told, strict=True)):
                ahead = _parted(state.model - old["output"])[n]
                gain, memory = self.one.gain(part, size, variance, old["gain"][n])
                gains.append(memory)
                model = model + gain * part
                share, memory = self.one.average(part, ahead, old["average"][n])
                averages.append(memory)
                output = output + share * (ahead + gain * part)
            trust = jnp.maximum(apart, 0.0)
            return model, {
                "y": y,
                "trust": jnp.where(trust > 0, trust / (trust + noise), 0.0),
                "output": output,
                "gain": tuple(gains),
                "average": tuple(averages),
            }

    def _parted(y):
        mean = jnp.full_like(y, y.mean())
        return mean, y - mean

    whole = wise.ours()["WISE"]
    average = jo.Innovations(average=Kept(0.3))
    return {
        "WISE": whole,
        "an average at rate 0.3, kept as 0.9": whole.replace(server=average),
        "a gain at rate 0.3": whole.replace(server=jo.Innovations(jo.Whitening(0.3))),
        "errors without leak": whole.replace(compress=jo.Centred(jo.Clipped(leak=1.0))),
        "the mean apart": whole.replace(server=Apart()),
    }


def main():
    arguments = bench.options(__doc__.splitlines()[0])
    from jaxota._core import devices as _devices

    _devices.virtual()
    from jaxota.experiments import wise
    from jaxota.experiments.wise_report import geometric

    rows, compared = [], changes()
    for name in ("wise", "offmap"):
        for purpose, draws in (("choose", CHOOSE), ("confirm", CONFIRM)):
            assert set(draws) <= set(wise.DESIGN)
            study = wise.study(0, 4, compared, name, (wise.STEP_SIZE,))
            keys = list(draws)[: 2 if arguments.short else None]
            data = study.replace(over=wise.over(name, (wise.STEP_SIZE,), keys)).run()
            gaps = wise.gaps(wise.labelled(data)).isel(round=-1, step_size=0, drop=True)
            ratios = (gaps / gaps.sel(algorithm="WISE")).median("draw")
            for label in list(compared)[1:]:
                ratio = ratios.sel(algorithm=label)
                worse, better = int((ratio > 1.05).sum()), int((ratio < 0.95).sum())
                told = f"{geometric(ratio):.3f}", f"{worse} of {ratio.size}", f"{better}"
                rows.append([name, purpose, label, *told, f"{float(ratio.max()):.3g}"])
    headings = ["map", "draws to", "with", "gap / WISE's", "worse in", "better in", "worst"]
    bench.said(__doc__.splitlines()[0], bench.machine() | bench.accelerator(), headings, rows)


if __name__ == "__main__":
    main()
