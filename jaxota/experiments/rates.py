"""What `jaxota run rates` shows: how the channel's error floor falls with N, SNR and S.

Full gradients, so that no minibatch noise covers the channel's; `Bounded` gains, 1/α = (KηM)²/P and
1/β = M²/P, which is how the proofs bound them (the offline ones grow as the noise-free run
converges, and leave no floor). The floor is what the channel adds: the gap, averaged over the last
half of the rounds, minus that of the same trial over an ideal channel. Means are geometric and
intervals are over data draws, which differ by more than trials do.

Step sizes and R are within the theorems' limits, and M above every gradient met: tests measure it
on the draws of the default seed.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxota import _arguments, _validate, stats, theory
from jaxota._chunks import trials_at_once
from jaxota._devices import on_devices, spread
from jaxota.algorithms import Algorithm, baaf, cobaaf
from jaxota.calibration import measure
from jaxota.channel import Channel
from jaxota.estimate import Identity
from jaxota.experiments import theory_plots
from jaxota.experiments.report import attributes
from jaxota.precode import Bounded
from jaxota.simulation import run_all
from jaxota.studies.descriptions import describe, versions
from jaxota.studies.spaces import Space, Variable
from jaxota.studies.work import Pieces
from jaxota.theory import noise
from jaxota.theory.side_by_side import CALIBRATION_TRIALS, first_of, well_conditioned
from jaxota.types import given

M, STEPS, DIM, USERS = 20.0, 4, 4, 16
SNR_DB = 10.0
REACH, SHORT_REACH = 0.02, 0.004  # Kη: within Theorems 1 and 2's limits, and within Theorem 3's
ROUNDS, LONG, DRAWS = 400, 1500, 5
SWEPT_USERS, SWEPT_SNR_DB, SWEPT_HEARD = (4, 16, 64), (-10.0, 0.0, 10.0, 20.0), (2, 4, 8, 16)


class Sweep(NamedTuple):
    """What runs as one program: settings that differ by their SNR, and S if that is swept."""

    users: int
    algorithms: dict[str, Algorithm]
    snr_db: tuple[float, ...]
    heard: tuple[int, ...]
    rounds: int


@dataclasses.dataclass(frozen=True)
class Rates:
    """What `jaxota run rates` found: curves by algorithm, by what is swept."""

    name = "rates"

    seed: int
    trials: int
    panels: dict[str, dict[str, theory_plots.RateCurve]]

    @classmethod
    def of(cls, seed: int, trials: int, dataset: Any) -> "Rates":
        """From what the job of this seed and so many trials found."""
        sweeps = _sweeps()

        def along(places):
            """Of each algorithm floors [draw, point] and the theorem's noise terms [point]."""
            return {
                name: tuple(
                    np.stack(
                        [dataset[k].sel(sweep=n, algorithm=name)[..., j] for n, j in places], -1
                    )
                    for k in ("floor", "promised")
                )
                for name in sweeps[places[0][0]].algorithms
            }

        by_users = [(f"N = {n}", sweeps[f"N = {n}"].snr_db.index(SNR_DB)) for n in SWEPT_USERS]
        by_snr = [(f"N = {USERS}", j) for j in range(len(SWEPT_SNR_DB))]
        by_heard = [("participants", j) for j in range(len(SWEPT_HEARD))]
        panels = {
            "users N": _curves(along(by_users), SWEPT_USERS),
            "SNR P/σ²": _curves(along(by_snr), 10 ** (np.asarray(SWEPT_SNR_DB) / 10)),
            f"participants S of {USERS}": _curves(along(by_heard), SWEPT_HEARD),
        }
        return cls(seed, trials, panels)

    def caption(self) -> str:
        return (
            f"rates: what the channel adds to the gap, full gradients, K = {STEPS}, d = {DIM}, "
            f"N = {USERS}, {SNR_DB:g} dB per vector unless swept; {DRAWS} data draws, "
            f"{self.trials} trials each, seed {self.seed}"
        )

    def table(self):
        """A line for each swept quantity and algorithm: the fitted exponent and the theorem's."""
        from rich.table import Table

        grid = Table()
        for heading in ("against", "algorithm"):
            grid.add_column(heading)
        for heading in ("first floor", "last floor", "exponent", "theorem's"):
            grid.add_column(heading, justify="right")
        for label, panel in self.panels.items():
            for name, curve in panel.items():
                grid.add_row(
                    label,
                    name,
                    *(f"{curve.floor.mean[k]:.3g}" for k in (0, -1)),
                    f"{curve.slope:.2f} ± {curve.half_width:.2f}" if curve.fitted else "none",
                    f"{curve.promised:.2f}",
                )
        return grid

    def remarks(self) -> list[str]:
        """What a reader of the table must know besides."""
        curves = [curve for panel in self.panels.values() for curve in panel.values()]
        unfitted = (
            "Where a draw's floor is not above 0 there is no exponent: ask for more with --trials.",
        ) * any(not curve.fitted for curve in curves)
        return [
            *unfitted,
            "Floors are geometric means. Exponents are slopes of log floor on log value; the "
            "theorem's are those of its noise terms as stated, with σ_θ and σ_c of the plan, their "
            "logarithm left out. ± is a 95 % interval over data draws.",
            f"Kη = {REACH:g} ({SHORT_REACH:g} where S is swept) is within the theorems' limits, "
            f"M = {M:g} above the gradients met, as measured for seed 0"
            + ("." if self.seed == 0 else "; for this seed nobody measured it."),
            "Theorems 2 and 3 state (1 + NK)/(KN²) for the control noise, about 1/N; the proof of "
            "Theorem 2 ends in (K + 2)/(KN²), 1/N². The identity's runs fall about as it says.",
            "With the MMSE estimate the floor is mostly its bias to the prior's mean (not on every "
            "draw at 20 dB or for few users), which the theorems leave out: their exponents are "
            "not its own.",
        ]

    def figure(self):
        title = (
            f"What the channel adds to the gap: full gradients, K = {STEPS}, N = {USERS}, "
            f"{SNR_DB:g} dB per vector unless swept; {DRAWS} data draws, 95 % bands"
        )
        return theory_plots.rates(self.panels, title)

    def rows(self):
        """The rows of the CSV, header first: one for each point of each curve."""
        yield [
            *("against", "algorithm", "value", "floor", "ci_low", "ci_high"),
            *("exponent", "exponent_half_width", "theorem_exponent"),
        ]
        for label, panel in self.panels.items():
            for name, curve in panel.items():
                slopes = curve.slope, curve.half_width, curve.promised
                floor = curve.floor
                points = zip(curve.values, floor.mean, floor.low, floor.high, strict=True)
                for point in points:
                    yield [label, name, *(f"{float(x):.9g}" for x in (*point, *slopes))]

    def dataset(self):
        """Everything as one `xarray.Dataset`: [against, algorithm, point]."""
        import xarray  # slow to import, needed here alone

        names = list(dict.fromkeys(name for panel in self.panels.values() for name in panel))
        most = max(len(c.values) for panel in self.panels.values() for c in panel.values())
        axes = "against", "algorithm", "point"
        points = np.full((4, len(self.panels), len(names), most), np.nan)
        slopes = np.full((3, len(self.panels), len(names)), np.nan)
        for row, panel in enumerate(self.panels.values()):
            for name, curve in panel.items():
                floor, at = curve.floor, (row, names.index(name))
                columns = curve.values, floor.mean, floor.low, floor.high
                points[:, *at, : len(curve.values)] = columns
                slopes[:, *at] = curve.slope, curve.half_width, curve.promised
        heads: tuple[str, ...] = ("value", "floor", "ci_low", "ci_high")
        variables: dict[Any, Any] = {k: (axes, v) for k, v in zip(heads, points, strict=True)}
        heads = "exponent", "exponent_half_width", "theorem_exponent"
        variables |= {k: (axes[:2], v) for k, v in zip(heads, slopes, strict=True)}
        return xarray.Dataset(
            variables,
            {"against": list(self.panels), "algorithm": names},
            attributes("rates", self.seed, self.caption()),
        )


def job(seed: int, trials: int) -> Pieces:
    """All sweeps on `DRAWS` data draws, `trials` each: a chunk is a sweep."""
    seed, trials = _validate.seed(seed), _validate.whole("trials", trials, 1)
    sweeps = _sweeps()
    names = _names(sweeps)
    sizes = {
        "sweep": len(sweeps),
        "algorithm": len(names),
        "draw": DRAWS,
        "point": max(len(sweep.snr_db) for sweep in sweeps.values()),
    }
    variables = {
        "floor": Variable(("sweep", "algorithm", "draw", "point"), "float64"),
        "promised": Variable(("sweep", "algorithm", "point"), "float64"),
    }
    return Pieces(
        "rates",
        Space(
            sizes,
            {"sweep": 1},
            variables,
            {"sweep": ("sweep", list(sweeps)), "algorithm": ("algorithm", names)},
        ),
        {
            "experiment": "rates",
            "seed": seed,
            "trials": trials,
            "sweeps": {label: describe(sweep._asdict()) for label, sweep in sweeps.items()},
            "draws": DRAWS,
            "calibration_trials": CALIBRATION_TRIALS,
            **versions(),
        },
        functools.partial(_chunk, seed, trials),
        steps=sum(_steps(sweep, trials) for sweep in sweeps.values()),
    )


def _sweeps() -> dict[str, Sweep]:
    """One for each N, of which one sweeps the SNR, too, and then one for S."""
    both, tuned = _algorithms(REACH), _algorithms(SHORT_REACH, controlled=True)
    by_users = {
        f"N = {n}": Sweep(n, both, SWEPT_SNR_DB if n == USERS else (SNR_DB,), (), ROUNDS)
        for n in SWEPT_USERS
    }
    alike = (SNR_DB,) * len(SWEPT_HEARD)
    return by_users | {"participants": Sweep(USERS, tuned, alike, SWEPT_HEARD, LONG)}


def _names(sweeps: dict[str, Sweep]) -> list[str]:
    """Of all algorithms."""
    return list(dict.fromkeys(name for sweep in sweeps.values() for name in sweep.algorithms))


def _steps(sweep: Sweep, trials: int) -> float:
    """Local steps of users, those of calibration among them."""
    runs = sum(
        2 * len(sweep.snr_db) * trials + CALIBRATION_TRIALS * bool(algorithm.needs)
        for algorithm in sweep.algorithms.values()
    )
    return float(DRAWS * runs * sweep.rounds * sweep.users * STEPS)


def _chunk(seed: int, trials: int, number: int) -> dict[str, np.ndarray]:
    """Of a sweep: floors [algorithm, draw, point], and what is promised [algorithm, point]."""
    sweeps = _sweeps()
    sweep = list(sweeps.values())[number]
    found = _floors(seed, trials, *sweep)
    points = len(sweep.snr_db)
    none = np.full((DRAWS, points), np.nan), np.full(points, np.nan)
    floors, promised = zip(*(found.get(name, none) for name in _names(sweeps)), strict=True)
    return {"floor": np.stack(floors), "promised": np.stack(promised)}


def _algorithms(reach: float, controlled: bool = False) -> dict:
    """BAAF and COBAAF, each also with the identity in place of the MMSE estimate."""
    local: dict[str, Any] = {"step_size": reach / STEPS, "steps": STEPS, "precode": Bounded(M)}
    plain = {"BAAF": baaf(**local), "BAAF, identity": baaf(**local, estimate=Identity())}
    both = {"COBAAF": cobaaf(**local), "COBAAF, identity": cobaaf(**local, estimate=Identity())}
    return both if controlled else plain | both


def _floors(seed, trials, users: int, algorithms: dict, snr_db, heard, rounds: int) -> dict:
    """Of each algorithm what the channel of each SNR (and S) adds to its gap [draw, setting], and
    the theorem's noise terms [setting].

    The second half of the settings are the first half's ideal channels.
    """
    task = well_conditioned(seed, DRAWS, users=users)
    key, half = jax.random.key(seed), len(snr_db)
    channels = Channel(
        snr_db=jnp.float32([*snr_db, *[jnp.inf] * half]),
        power=jnp.ones(2 * half),
        participants=jnp.asarray(heard * 2) if heard else (),
    )
    enter = functools.partial(_arguments.experiment, calibration_trials=CALIBRATION_TRIALS)
    entered = [
        enter(key, algorithm, channels, task, rounds, trials) for algorithm in algorithms.values()
    ]
    arguments, options = entered[0]
    chunk = trials_at_once(tuple(algorithms.values()), first_of(task), 2 * half * DRAWS)
    options = options._replace(chunk=chunk, over=spread(1, DRAWS))
    found = _program(
        options,
        key=key,
        trials=arguments["trials"],
        algorithms=tuple(each["algorithm"] for each, _ in entered),
        channels=arguments["channel"],
        task=arguments["task"],
    )
    theorem = theory.theorem_3 if heard else None
    pairs = {}
    for (name, algorithm), (gap, *sigmas) in zip(algorithms.items(), found, strict=True):
        floor = np.asarray(gap[:, :half] - gap[:, half:], np.float64).mean(-1)
        of = theorem or (theory.theorem_2 if algorithm.local.controlled else theory.theorem_1)
        count = np.asarray(heard or (users,) * half, np.float32)
        pairs[name] = floor, _noise_terms(of, users, count, *(x[:, :half].mean(0) for x in sigmas))
    return pairs


@functools.partial(jax.jit, static_argnames="options")
def _program(options, key, trials, algorithms, channels, task):
    """Of each algorithm [draw, setting, …]: mean gap over the last half of the rounds, σ_θ, σ_c."""
    draws, structure = jax.tree.flatten(task)

    def draw(values):
        task = jax.tree.unflatten(structure, values)
        return _over_settings(options, key, trials, algorithms, channels, task)

    return on_devices(draw, options.over, draws, [0] * len(draws))


def _over_settings(options, key, trials, algorithms, channels, task):
    plans = tuple(
        measure(options, key, algorithm, task, initial=()) if algorithm.needs else ()
        for algorithm in algorithms
    )
    # Bounded gains read no energies: those of a run may be anything.
    every, energies = jnp.ones((1, 1), bool), jnp.ones((1, options.rounds, task.users))

    def setting(channel):
        histories = run_all(options, key, trials, algorithms, channel, task, plans, initial=())
        heard = channel.participants if given(channel.participants) else task.users
        seen = []
        for algorithm, plan, history in zip(algorithms, plans, histories, strict=True):
            moments, last = algorithm.moments(plan) or ((), ()), int(algorithm.local.controlled)
            sigma = functools.partial(noise.largest, algorithm, channel, task.dim)
            sigmas = [sigma(b, moments[b], energies, heard, every)[0] for b in (0, last)]
            seen.append((history.gap[:, options.rounds // 2 :].mean(-1), *sigmas))
        return tuple(seen)

    return jax.vmap(setting)(channels)


def _noise_terms(theorem, users: int, heard, model_noise, control_noise) -> np.ndarray:
    """The theorem's noise terms [point], up to a constant and without their logarithm."""
    one = np.ones(len(heard), np.float32)
    names = [f.name for f in dataclasses.fields(theory.Constants) if f.default != ()]
    constants = theory.Constants(**dict.fromkeys(names, one)).replace(
        initial_distance=1e30 * one,  # so that no logarithm is cut off at 0
        users=users * one,
        participants=heard,
        model_noise=model_noise,
        control_noise=control_noise,
        steps=STEPS * one,
    )
    bound = jax.vmap(lambda c: theorem(c, 100.0))(constants)
    return np.asarray((bound.model_noise + bound.control_noise) / bound.logarithm, np.float64)


def _curves(found: dict, values) -> dict[str, theory_plots.RateCurve]:
    values = np.asarray(values, np.float64)
    pull = np.log(values) - np.log(values).mean()
    pull /= (pull**2).sum()  # the slope is this combination of the logarithms
    curves = {}
    for name, (samples, promised) in found.items():
        with np.errstate(invalid="ignore", divide="ignore"):  # a floor may come out below 0
            logs = np.where(samples > 0, np.log(samples), np.nan)
        band, slope = stats.interval(logs), stats.interval(logs @ pull)
        ends = np.exp(band.mean), np.exp(band.low), np.exp(band.high)
        curves[name] = theory_plots.RateCurve(
            values,
            stats.Interval(*ends, band.used, band.trials),
            float(slope.mean) if not slope.diverged else np.nan,
            float(slope.half_width),
            float(pull @ np.log(promised)),
        )
    return curves
