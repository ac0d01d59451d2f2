"""Which changes to WISE help on data draws that were not used to choose them?

    python benchmarks/wise/design.py

Each change beside WISE as it is, on the map and off it: on draws to choose on and on draws to
confirm on. Tests (maps.py, ablation.py) use other draws.
"""

import jax.numpy as jnp
import pandas
import wise_map

import jaxota as jo

DRAWS = {"choose": range(0, 8), "confirm": range(500, 508)}


@jo.part
class CappedSwitching:
    """`Switching` at another rate, whose share is remembered as at most 0.9."""

    rate: float = jo.traced(at_least=0.0)

    start = jo.Switching.start

    def __call__(self, y, ahead, memory):
        share, after = jo.Switching(self.rate)(y, ahead, memory)
        return share, after | {"share": jnp.minimum(share, 0.9)}


@jo.part
class MeanApart:
    """`Innovations` with a gain and an average of its own for the coded mean."""

    one: jo.Innovations = jo.Innovations()

    answer, output = jo.Innovations.answer, jo.Innovations.output

    def start(self, model):
        memory = self.one.start(model)
        return memory | {name: (memory[name], memory[name]) for name in ("gain", "average")}

    def __call__(self, seen, state):
        old, y = state.server, seen.estimate - state.model
        noise = (y.size - 1) * seen.deviation**2
        norms, means = seen.side.reports["norm"], seen.side.reports["mean"]
        mean_sizes = jnp.sqrt(y.size) * jnp.abs(means)
        other_sizes = jnp.sqrt(jnp.maximum(norms**2 - mean_sizes**2, 0.0))
        spread = seen.link.mean(norms**2) - jnp.maximum(jnp.sum(y**2) - noise, 0.0)
        trust = jnp.maximum(spread, 0.0)
        sizes = seen.link.mean(mean_sizes), seen.link.mean(other_sizes)
        aheads = _parted(state.model - old["output"])
        model, output, gains, averages = state.model, old["output"], [], []
        for n, part in enumerate(_parted(y)):
            variance = (0.0 * noise, noise)[n]
            gain, memory = self.one.gain(part, sizes[n], variance, old["gain"][n])
            gains.append(memory)
            model = model + gain * part
            share, memory = self.one.average(part, aheads[n], old["average"][n])
            averages.append(memory)
            output = output + share * (aheads[n] + gain * part)
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


def changes() -> dict[str, jo.Algorithm]:
    """Return WISE and the changes to it that were tried."""
    wise = jo.wise(**wise_map.LOCAL)
    average = jo.Innovations(average=CappedSwitching(0.3))
    return {
        "WISE": wise,
        "an average at rate 0.3, kept as 0.9": wise.replace(server=average),
        "a gain at rate 0.3": wise.replace(server=jo.Innovations(jo.Whitening(0.3))),
        "errors without leak": wise.replace(compress=jo.Centred(jo.Clipped(leak=1.0))),
        "the mean apart": wise.replace(server=MeanApart()),
    }


def main(draws: int = 8, trials: int = 4) -> None:
    for name, regimes in {"On": wise_map.MAP, "Off": wise_map.OFF_MAP}.items():
        for purpose, chosen in DRAWS.items():
            study = wise_map.study(name, regimes, changes(), list(chosen)[:draws], 0, trials)
            header, *rows = wise_map.table(wise_map.relative_to_wise(study.run()))
            print(f"{name} the map, draws to {purpose}: gap over that of WISE")
            print(pandas.DataFrame(rows, columns=header).to_string(index=False))


if __name__ == "__main__":
    main()
