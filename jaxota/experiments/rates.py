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

from jaxota import theory
from jaxota._core import arguments as _arguments
from jaxota._core import inputs as _validate
from jaxota._core.batching import trials_at_once
from jaxota._core.devices import compiled, on_devices, spread
from jaxota.algorithms import Algorithm, baaf, cobaaf
from jaxota.calibration import measure
from jaxota.simulation import run_all
from jaxota.stages.channel import Channel
from jaxota.stages.estimate import Identity
from jaxota.stages.precode import Bounded
from jaxota.study.describe import describe, versions
from jaxota.study.executor import Pieces
from jaxota.study.layout import Layout, Variable
from jaxota.theory import noise
from jaxota.theory.side_by_side import CALIBRATION_TRIALS, first_of, well_conditioned

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
        Layout(
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
        participants=jnp.asarray(heard * 2) if heard else None,
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


@functools.partial(compiled, static=("options",))
def _program(options, key, trials, algorithms, channels, task):
    """Of each algorithm [draw, setting, …]: mean gap over the last half of the rounds, σ_θ, σ_c."""
    draws, structure = jax.tree.flatten(task)

    def draw(values):
        task = jax.tree.unflatten(structure, values)
        return _over_settings(options, key, trials, algorithms, channels, task)

    return on_devices(draw, options.over, draws, [0] * len(draws))


def _over_settings(options, key, trials, algorithms, channels, task):
    plans = tuple(
        measure(options, key, algorithm, task, initial=None) if algorithm.needs else None
        for algorithm in algorithms
    )
    # Bounded gains read no energies: those of a run may be anything.
    every, energies = jnp.ones((1, 1), bool), jnp.ones((1, options.rounds, task.users))

    def setting(channel):
        histories = run_all(options, key, trials, algorithms, channel, task, plans, initial=None)
        heard = channel.participants if channel.participants is not None else task.users
        seen = []
        for algorithm, plan, history in zip(algorithms, plans, histories, strict=True):
            moments: Any = algorithm.moments(plan) or (None, None)
            last = int(algorithm.local.controlled)
            sigma = functools.partial(noise.largest, algorithm, channel, task.dim)
            sigmas = [sigma(b, moments[b], energies, heard, every)[0] for b in (0, last)]
            gap: Any = history.gap
            seen.append((gap[:, options.rounds // 2 :].mean(-1), *sigmas))
        return tuple(seen)

    return jax.vmap(setting)(channels)


def _noise_terms(theorem, users: int, heard, model_noise, control_noise) -> np.ndarray:
    """The theorem's noise terms [point], up to a constant and without their logarithm."""
    one = np.ones(len(heard), np.float32)
    names = [f.name for f in dataclasses.fields(theory.Constants) if f.default is not None]
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
