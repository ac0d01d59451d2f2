"""Which changes to WISE help on data draws that were not used to choose them?

    python benchmarks/wise/design.py

Each change beside WISE as it is, on both halves of the map, on draws to choose on and on draws to
confirm on. Tests (maps.py, ablation.py) use other draws.
"""

import jax.numpy as jnp
import pandas
import wise_map

import jaxota as jo

DRAWS = {"choose": range(0, 8), "confirm": range(500, 508)}


@jo.part
class Along:
    """`Innovations` whose coded direction is another than the principal one."""

    which: str = jo.static(one_of=("last innovation", "displacement", "forgetful"))
    one: jo.Innovations = jo.Innovations()

    answer, output = jo.Innovations.answer, jo.Innovations.output

    def start(self, model):
        return self.one.start(model) | {"first": model}

    def __call__(self, seen, state):
        old = state.server
        model, memory = self.one(seen, state)
        added = memory["principal"] - old["principal"]
        memory["principal"] = {
            "last innovation": memory["y"],
            "displacement": model - old["first"],
            "forgetful": 0.9 * old["principal"] + added,
        }[self.which]
        return model, memory | {"first": old["first"]}


@jo.part
class Reserved:
    """`Whitening` as it was: no lift of z, no haste in the first rounds, no bound on steps."""

    lift: float = jo.traced(default=0.0, at_least=0.0)

    start = jo.Whitening.start

    def __call__(self, y, size, noise, memory):
        gain, after = jo.Whitening(longest=jnp.inf)(y, size, noise, memory)
        excess = (0.1 - self.lift) * jnp.maximum(0.2, 1.0 / after["rounds"])
        first = jnp.where(after["rounds"] == 1, gain * jnp.exp(-excess), memory["gain"])
        lengths = jnp.linalg.norm(y) * jnp.linalg.norm(memory["trend"])
        cosine = jnp.where(lengths > 0, jnp.vdot(y, memory["trend"]) / lengths, 0.0)
        z = jnp.tanh(0.5 * y.size**0.5 * cosine)
        gain = jnp.where(after["rounds"] == 1, first, first * jnp.exp(0.2 * (z + self.lift)))
        return gain, after | {"gain": gain}


def changes() -> dict[str, jo.Algorithm]:
    """Return WISE and the changes to it that were tried."""
    wise = jo.wise(**wise_map.LOCAL)
    uncoded = wise.replace(local=wise.local.replace(coded=False))
    found = {
        "WISE": wise,
        "nothing coded": uncoded,
        "coded along the ones": uncoded.replace(compress=jo.Centred(jo.Clipped())),
    }
    for which in ("last innovation", "displacement", "forgetful"):
        found[f"coded along: {which}"] = wise.replace(server=Along(which))
    for name, gain in {
        "the first gain": Reserved(),
        "steps up to 3 mean steps": jo.Whitening(longest=3.0),
        "unbounded steps": jo.Whitening(longest=jnp.inf),
        "a gain at rate 0.3": jo.Whitening(rate=0.3),
    }.items():
        found[name] = wise.replace(server=jo.Innovations(gain))
    return found


def main(draws: int = 8, trials: int = 4) -> None:
    for rotated in (True, False):
        for purpose, chosen in DRAWS.items():
            data = list(chosen)[:draws]
            study = wise_map.study(
                "design", wise_map.MAP, changes(), data, 0, trials, rotated=rotated
            )
            header, *rows = wise_map.table(wise_map.relative_to_wise(study.run()))
            half = "Rotated" if rotated else "As they are"
            print(f"{half}, draws to {purpose}: gap over that of WISE")
            print(pandas.DataFrame(rows, columns=header).to_string(index=False), flush=True)


if __name__ == "__main__":
    main()
