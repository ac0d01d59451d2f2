"""`exact`: expected curves of linear algorithms on least squares, without Monte Carlo.

`jaxota.theory.recursion` maps the moments of the broadcast state through the rounds, and
`jaxota.theory.links` knows who is heard. Here are the entry, the refusals, and the plan.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxota._core import arguments, inputs
from jaxota._core.part import Scalar, part, suggest_keywords
from jaxota._core.state import Plan
from jaxota.algorithms import Algorithm
from jaxota.calibration import noise_free
from jaxota.errors import InputError
from jaxota.stages.channel import Channel, Ideal
from jaxota.stages.geometry import Cell
from jaxota.tasks.problem import Task
from jaxota.tasks.weights import times_weights
from jaxota.theory import links
from jaxota.theory.recursion import run
from jaxota.theory.steps import Data

if TYPE_CHECKING:
    import xarray

ByRound: TypeAlias = Float[Array | np.ndarray, "*setting round"]


@part
class Expected:
    """Expectations over trials, exact up to rounding: row r is the state after round r.

    Attributes:
        gap: [round] E[F(θ̂)] − F(θ*).
        loss: [round] E[F(θ̂)].
        mean: [round, d] E[θ̂].
        covariance: [round, d, d] that of θ̂ between trials.
        error, control_error: [round] E‖estimate − true average‖² of either block.
        deviation, control_deviation: [round] √ν, that of the noise on either average; its root mean
            square where the number of users heard is random.
        mean_power, mean_control_power: [round] mean_i E‖x_i‖²/P of either block.
        settings: [setting] the swept values of each name.

    Results of the control block are None where there is none. A sweep puts an axis [setting] first.
    """

    gap: ByRound
    loss: ByRound
    mean: Float[Array | np.ndarray, "*setting round d"]
    covariance: Float[Array | np.ndarray, "*setting round d d"]
    error: ByRound
    deviation: ByRound
    mean_power: ByRound
    control_error: ByRound | None = None
    control_deviation: ByRound | None = None
    mean_control_power: ByRound | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)

    replace = dataclasses.replace

    def to_xarray(self) -> "xarray.Dataset":
        """Return the same as an `xarray.Dataset`, with named dimensions and coordinates."""
        import xarray  # slow to import

        lead = ("setting",) if self.settings else ()
        dims = {"mean": ("round", "parameter"), "covariance": ("round", "parameter", "other")}
        results = {k: v for k, v in vars(self).items() if k != "settings" and v is not None}
        named = {k: ((*lead, *dims.get(k, ("round",))), v) for k, v in results.items()}
        data = xarray.Dataset(named)
        coords: dict[str, Any] = {"round": 1 + np.arange(data.sizes["round"])}
        for name, values in self.settings.items():
            if not jnp.issubdtype(values.dtype, jax.dtypes.prng_key):  # no labels, but random keys
                coords[name] = "setting", np.asarray(values)
        return data.assign_coords(coords)


@suggest_keywords
def exact(
    algorithm: Algorithm, channel: Channel, task: Task, rounds: int, plan: Plan | None = None
) -> Expected:
    """Compute what `simulate` gives on average over infinitely many trials, for every round.

    Args:
        algorithm: one of linear parts: `SGD`, `Proximal` or `ControlVariateSGD` with full control
            gradients; `Offline`, `Constant` or `Bounded`; `Identity`, `MMSE`, `UpdateMMSE` or
            `PooledMMSE`; a server that replaces the model, or a linear one such as
            `optax.sgd(1.0, momentum=0.9)`.
        channel: a `jo.Channel(...)` whose fading, if any, is independent between rounds.
        task: least squares, as of `jo.tasks.regression`, with one set of data for all trials.
        rounds: R, communication rounds.
        plan: the plan of the runs; by default that of infinitely many calibration runs.

    An array in the place of a number is swept, as in `sweep`. What is not linear, such as `Online`
    or `JamesStein`, raises an `InputError`. Everything is computed in float64.
    """
    checked, _ = arguments.experiment(0, algorithm, channel, task, rounds, 1, plan)
    parts = {name: checked[name] for name in ("algorithm", "channel", "plan", "task")}
    extra = [inputs.extra_axes(value, name) for name, value in parts.items()]
    paths = {path: more for each in extra for path, more in each.items()}
    values, structure = jax.tree.flatten(parts)
    swept = {path: v for (path, more), v in zip(paths.items(), values, strict=True) if more}
    lengths = {path: len(v) for path, v in swept.items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise InputError(f"swept fields go in step and must be of one length ≥ 1, got {lengths}")
    pairs = zip(paths.values(), values, strict=True)
    first = jax.tree.unflatten(structure, [v[0] if more else v for more, v in pairs])
    sets = check_linear(parts["algorithm"], parts["channel"], first["task"])
    axes = tuple(0 if more else None for more in paths.values())
    with jax.enable_x64(True):
        energies, expected = jax.device_get(_program(rounds, structure, axes, values, sets))
    if np.isnan(energies).any():
        raise InputError(
            "algorithm.precode must choose its gains before the run for exact curves, as "
            "jo.Offline() and jo.Constant() do: jo.simulate runs it"
        )
    return expected.replace(settings={path.rsplit(".", 1)[1]: v for path, v in swept.items()})


def exact_plan(algorithm: Algorithm, task: Task, rounds: int) -> Plan:
    """Compute the plan that `calibrate` measures with infinitely many runs.

    The arguments are those of `exact`; a task with an array of keys has a plan for each of them.
    """
    checked, _ = arguments.experiment(0, algorithm, Channel(), task, rounds, 1)
    rule, task = noise_free(checked["algorithm"]), checked["task"]
    arguments.refuse_swept(algorithm=rule)
    swept = {path for path, more in inputs.extra_axes(task, "task").items() if more}
    values, structure = jax.tree.flatten(task)
    axes = tuple(0 if path in swept else None for path in inputs.extra_axes(task, "task"))
    pairs = zip(axes, values, strict=True)
    first = jax.tree.unflatten(structure, [v if axis is None else v[0] for axis, v in pairs])
    check_linear(rule, checked["channel"], first)
    with jax.enable_x64(True):
        plan = jax.device_get(_plan_program(rounds, rule, structure, axes, values))
    return jax.tree.map(np.float32, plan)


def check_linear(algorithm: Algorithm, channel: Any, task: Any) -> np.ndarray | None:
    """Raise InputError at the first part whose map of moments is not known.

    Returns:
        The sets of users that may be heard, where it matters who is.
    """
    why = "for exact curves: jo.simulate runs it"
    if getattr(task, "redraw", False) or not hasattr(jax.eval_shape(task.problem, 0), "hessians"):
        raise InputError(f"task must be least squares with one set of data {why}")
    if isinstance(channel.gains, Cell):
        raise InputError(f"channel.gains must be numbers, such as cell.gains, {why}")
    if getattr(algorithm.local, "linear_steps", lambda: None)() is None:
        raise InputError(
            f"algorithm.local must take linear steps {why}: plain gradients, and controls of "
            "option 1 with control_batch=None"
        )
    if not hasattr(algorithm.estimate, "affine"):
        shown = inputs.shown(algorithm.estimate)
        raise InputError(f"algorithm.estimate must be affine in what it receives {why}: {shown}")
    if not hasattr(algorithm.compress, "keeps_values"):
        shown = inputs.shown(algorithm.compress)
        raise InputError(f"algorithm.compress must send all values as they are {why}: {shown}")
    server: Any = algorithm.server
    memory = server.start(jnp.zeros(1))
    if getattr(server, "affine", lambda memory: None)(memory) is None:
        raise InputError(
            f"algorithm.server must take linear steps {why}: optax.sgd does, with momentum, too"
        )
    carrier: Any = algorithm.medium(channel)
    # Read off the class: a carrier that wraps a channel passes on the attributes of its values.
    if not getattr(type(carrier), "superposes", False):
        raise InputError(f"algorithm.medium must superpose signals as jo.Channel does {why}")
    if not getattr(carrier.fading, "independent", False):
        raise InputError(
            "channel.fading must be answered by jo.Inversion() or jo.PhaseOnly(), with no "
            "correlation between rounds, and estimates without errors where the answer is "
            f"PhaseOnly under other than Rayleigh fading, {why}"
        )
    if not getattr(carrier.noise, "finite_variance", True):
        raise InputError(f"channel.noise must have a finite variance {why}")
    if not links.is_random(carrier):
        return None
    if links.fades(carrier) and any(leaf.dtype.kind == "i" for leaf in jax.tree.leaves(memory)):
        raise InputError(f"algorithm.server must not count rounds under fading {why}")
    if links.alike(algorithm, carrier):
        return None
    return links.enumerate_sets(task.users, carrier.participants, links.fades(carrier))


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _program(
    rounds: int,
    structure: Any,
    axes: tuple[int | None, ...],
    values: list[Any],
    sets: Array | None,
) -> tuple[Array, Expected]:
    def setting(values: list[Any]) -> tuple[Array, Expected]:
        return _expected(rounds, sets=sets, **jax.tree.unflatten(structure, values))

    return one_by_one(setting, axes, values)


@functools.partial(jax.jit, static_argnums=(0, 2, 3))
def _plan_program(
    rounds: int,
    algorithm: Algorithm,
    structure: Any,
    axes: tuple[int | None, ...],
    values: list[Any],
) -> Plan:
    def setting(values: list[Any]) -> Plan:
        problem = jax.tree.unflatten(structure, values).problem(0)
        return _plan(rounds, double(algorithm), problem)

    return one_by_one(setting, axes, values)


def one_by_one(setting: Any, axes: tuple[int | None, ...], values: list[Any]) -> Any:
    """Compute one setting, or several one after the other: their operators stay in the cache."""
    if 0 not in axes:
        return setting(values)
    swept = [v for v, axis in zip(values, axes, strict=True) if axis == 0]

    def one(rows: list[Any]) -> Any:
        taken = iter(rows)
        return setting(
            [next(taken) if axis == 0 else v for v, axis in zip(values, axes, strict=True)]
        )

    return jax.lax.map(one, swept)


def double(parts: Any) -> Any:
    """Return parts with their numbers in float64."""

    def cast(leaf: Array) -> Array:
        return leaf.astype("float64") if leaf.dtype == np.float32 else leaf

    return jax.tree.map(cast, parts)


def _expected(
    rounds: int, algorithm: Algorithm, channel: Channel, task: Any, plan: Plan | None, sets: Any
) -> tuple[Array, Expected]:
    """Return the full-power energies [block, round] and the expectations of one setting."""
    problem, (algorithm, channel, plan) = task.problem(0), double((algorithm, channel, plan))
    if algorithm.needs and plan is None:
        plan = _plan(rounds, algorithm, problem)
    rows: Any = algorithm.moments(plan, rounds) or None
    carrier = algorithm.medium(channel)
    data, dim = task_data(problem), problem.dim
    air, deviations, shares = links.air(rounds, algorithm, carrier, data, rows, sets)
    states, records = run(rounds, algorithm, data, air)
    gap, least = gaps(data, states)
    mean, second = states[:, :dim, -1], states[:, :dim, :dim]
    results: dict[str, Any] = {}
    energies: list[Any] = [link.energy for link in air.links]
    every = zip(("", "control_"), energies, records, deviations, shares, strict=False)
    for name, energy, record, deviation, share in every:
        results[f"{name}error"], results[f"{name}deviation"] = record.error, deviation
        results[f"mean_{name}power"] = record.energy @ share / len(share) / energy
    covariance = second - mean[:, :, None] * mean[:, None, :]
    expected = Expected(gap, least + gap, mean, covariance, **results)
    return jnp.stack(energies), expected


def gaps(data: Data, states: Float[Array, "round m m"]) -> tuple[Float[Array, "round"], Scalar]:
    """Return E[F(θ̂)] − F(θ*) of every round, and F(θ*)."""
    users, dim = data.slopes.shape
    half, slope = (jnp.einsum("n,n...->...", data.weights, x) / 2.0 / users for x in data[:2])
    optimum = jnp.linalg.pinv(half, hermitian=True) @ slope
    residual = jnp.einsum("nsd,d->ns", data.features, optimum) - data.targets
    least = (data.weights * (residual**2).sum(1) / data.counts).mean()
    mean, second = states[:, :dim, -1], states[:, :dim, :dim]
    gap = jnp.einsum("rde,de->r", second, half) - 2.0 * (mean @ half @ optimum)
    return gap + optimum @ half @ optimum, least


def task_data(problem: Any) -> Data:
    """Return a problem's data in float64, with Hessians of that precision."""
    arrays = problem.features, problem.targets, problem.counts
    features, targets, counts = (x.astype("float64") for x in arrays)
    hessians = 2.0 * jnp.einsum("nsd,nse->nde", features, features) / counts[:, None, None]
    slopes = 2.0 * jnp.einsum("nsd,ns->nd", features, targets) / counts[:, None]
    weights = times_weights(double(getattr(problem, "weights", None)), jnp.ones(len(counts)))
    return Data(hessians, slopes, features, targets, counts, weights)


def _plan(rounds: int, algorithm: Algorithm, problem: Any) -> Plan:
    """Return the plan of noise-free runs on the calibration share of the data."""
    rule, data = noise_free(algorithm), task_data(problem.head())
    air, *_ = links.air(rounds, rule, Ideal(), data, None, None)
    _, (model, *control) = run(rounds, rule, data, air)
    others = {"average_mean": model.average_mean, "average_var": model.average_var}
    others |= {"update_mean": model.sent_mean, "update_var": model.sent_var}
    plan = Plan(model.energy.max(1), model.mean, model.var, **others)
    for moments in control:
        plan = plan.replace(
            control_energy=moments.energy.max(1),
            control_mean=moments.mean,
            control_var=moments.var,
            average_control_mean=moments.average_mean,
            average_control_var=moments.average_var,
        )
    return plan
