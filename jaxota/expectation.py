"""`exact`: expected curves of linear algorithms on least squares, without Monte Carlo.

`jaxota.theory.recursion` maps the moments of the broadcast state through the rounds. Here are the
entry, the links of a channel, and the plan.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxota._core import arguments, inputs
from jaxota._core.part import part, suggest_keywords
from jaxota._core.state import Plan
from jaxota.algorithms import Algorithm
from jaxota.calibration import noise_free
from jaxota.errors import InputError
from jaxota.stages.channel import Block, Channel, noise_over
from jaxota.stages.fading import ideal_link
from jaxota.tasks.problem import Task
from jaxota.theory.recursion import Data, Heard, Link, run

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
        mean_power, mean_control_power: [round] mean_i E‖x_i‖²/P of either block; None under fading.
        settings: [setting] the swept values of each name.

    Results of the control block are None where there is none. A sweep puts an axis [setting] first.
    """

    gap: ByRound
    loss: ByRound
    mean: Float[Array | np.ndarray, "*setting round d"]
    covariance: Float[Array | np.ndarray, "*setting round d d"]
    error: ByRound
    deviation: ByRound
    mean_power: ByRound | None
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
            `PooledMMSE`.
        channel: a `jo.Channel(...)`. Where not all users are heard, because of `participants` or
            fading, the algorithm must have neither controls nor a prior of its users.
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
    _refuse_nonlinear(parts["algorithm"], parts["channel"], first["task"])
    axes = tuple(0 if more else None for more in paths.values())
    with jax.enable_x64(True):
        energies, expected = jax.device_get(_program(rounds, structure, axes, values))
    if np.isnan(energies).any():
        raise InputError(
            "algorithm.precode must choose its gains before the run for exact curves, as "
            "jo.Offline() and jo.Constant() do: jo.simulate runs it"
        )
    return expected.replace(settings={path.rsplit(".", 1)[1]: v for path, v in swept.items()})


def exact_plan(algorithm: Algorithm, task: Task, rounds: int) -> Plan:
    """Compute the plan that `calibrate` measures with infinitely many runs.

    The arguments are those of `exact`.
    """
    checked, _ = arguments.experiment(0, algorithm, Channel(), task, rounds, 1)
    rule, task = noise_free(checked["algorithm"]), checked["task"]
    arguments.refuse_swept(algorithm=rule, task=task)
    _refuse_nonlinear(rule, checked["channel"], task)
    with jax.enable_x64(True):
        plan = jax.device_get(_plan_program(rounds, rule, task))
    return jax.tree.map(np.float32, plan)


def _refuse_nonlinear(algorithm: Algorithm, channel: Any, task: Any) -> None:
    """Raise InputError at the first part whose map of moments is not known."""
    why = "for exact curves: jo.simulate runs it"
    local, estimate = algorithm.local, algorithm.estimate
    if getattr(task, "redraw", False) or not hasattr(jax.eval_shape(task.problem, 0), "hessians"):
        raise InputError(f"task must be least squares with one set of data {why}")
    if getattr(local, "linear_steps", lambda: None)() is None:
        raise InputError(
            f"algorithm.local must take linear steps {why}: plain gradients, and controls of "
            "option 1 with control_batch=None"
        )
    for path, stage, member in (
        ("algorithm.estimate", estimate, "affine"),
        ("algorithm.server", algorithm.server, "keeps_estimate"),
        ("algorithm.compress", algorithm.compress, "keeps_values"),
    ):
        if not hasattr(stage, member):
            raise InputError(f"{path} must be linear {why}, got {inputs.shown(stage)}")
    carrier: Any = algorithm.medium(channel)
    if carrier is not channel:
        return  # error-free links
    fading = channel.fading
    if not hasattr(fading, "chance") or not fading.independent or channel.gains is not None:
        raise InputError(
            "channel.fading must be Rayleigh or Nakagami, without errors of estimates, correlation "
            f"and gains of users, {why}"
        )
    all_heard = channel.participants is None and fading.chance() is None
    if not all_heard and (local.controlled or estimate.needs):
        raise InputError(
            "channel must let all users be heard, without participants and fading, with controls "
            f"or a prior of users, {why}"
        )


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _program(
    rounds: int, structure: Any, axes: tuple[int | None, ...], values: list[Any]
) -> tuple[Array, Expected]:
    def setting(values: list[Any]) -> tuple[Array, Expected]:
        return _expected(rounds, **jax.tree.unflatten(structure, values))

    return jax.vmap(setting, (list(axes),))(values) if 0 in axes else setting(values)


@functools.partial(jax.jit, static_argnums=0)
def _plan_program(rounds: int, algorithm: Algorithm, task: Any) -> Plan:
    return _plan(rounds, algorithm, task.problem(0))


def _expected(
    rounds: int, algorithm: Algorithm, channel: Channel, task: Any, plan: Plan | None
) -> tuple[Array, Expected]:
    """Return the full-power energies [block, round] and the expectations of one setting."""
    problem, carrier = task.problem(0), algorithm.medium(channel)
    data, heard, dim = _doubles(problem), _heard(carrier, problem.users), problem.dim
    if algorithm.needs and plan is None:
        plan = _plan(rounds, algorithm, problem)
    rows: Any = algorithm.moments(plan) or (None, None)
    blocks = range(1 + algorithm.local.controlled)
    links = tuple(
        _link(algorithm, carrier, problem, block, rows[block], rounds) for block in blocks
    )
    states, moments = run(rounds, algorithm, data, heard, links)
    half = data.hessians.mean(0) / 2.0
    optimum = jnp.linalg.pinv(half, hermitian=True) @ data.slopes.mean(0) / 2.0
    residual = jnp.einsum("nsd,d->ns", data.features, optimum) - data.targets
    least = ((residual**2).sum(1) / data.counts).mean()
    mean, second = states[:, :dim, -1], states[:, :dim, :dim]
    gap = jnp.einsum("rde,de->r", second, half) - 2.0 * (mean @ half @ optimum)
    gap += optimum @ half @ optimum
    results: dict[str, Any] = {}
    share = _power_share(carrier, problem.users)
    for name, link, record in zip(("", "control_"), links, moments, strict=False):
        noise = link.noise * heard.inverse_square / heard.anyone
        results[f"{name}error"], results[f"{name}deviation"] = record.error, jnp.sqrt(noise)
        spent = record.energy.mean(1) / link.energy
        results[f"mean_{name}power"] = share * spent if share is not None else None
    covariance = second - mean[:, :, None] * mean[:, None, :]
    expected = Expected(gap, least + gap, mean, covariance, **results)
    return jnp.stack([link.energy for link in links]), expected


def _doubles(problem: Any) -> Data:
    """Return a problem's data in float64, with Hessians of that precision."""
    features, targets, counts = (
        x.astype("float64") for x in (problem.features, problem.targets, problem.counts)
    )
    hessians = 2.0 * jnp.einsum("nsd,nse->nde", features, features) / counts[:, None, None]
    slopes = 2.0 * jnp.einsum("nsd,ns->nd", features, targets) / counts[:, None]
    return Data(hessians, slopes, features, targets, counts)


def _heard(carrier: Any, users: int) -> Heard:
    """Return expectations over n ~ Binomial(S, q): S participants, each heard with chance q."""
    chance = carrier.fading.chance() if hasattr(carrier, "fading") else None
    chosen = getattr(carrier, "participants", None)
    if chance is None and chosen is None:
        return Heard(*(jnp.float64(x) for x in (1.0, 1.0 / users, 1.0 / users**2)))
    n = jnp.arange(1.0, users + 1.0)
    total = jnp.float64(users if chosen is None else chosen)
    chances = jax.scipy.stats.binom.pmf(n, total, jnp.float64(1.0 if chance is None else chance))
    return Heard(chances.sum(), (chances / n).sum(), (chances / n**2).sum())


def _power_share(carrier: Any, users: int) -> Any:
    """Return the mean over users of E[heard·amplification]; None where fading makes it random."""
    if carrier.noise_variance(1) is None:  # error-free links
        return 0.0
    if carrier.fading.chance() is not None:
        return None
    return 1.0 if carrier.participants is None else carrier.participants / users


def _link(
    algorithm: Algorithm, carrier: Any, problem: Any, number: int, rows: Any, rounds: int
) -> Link:
    """Return the link of a block in every round; `rows` are its moments in the plan."""
    users, ones = problem.users, jnp.ones(rounds)
    power = (carrier.power, carrier.control_budget)[number]
    noise = noise_over(power, carrier, problem.dim)
    if noise is None:
        return Link(ones, 0.0 * ones, ones, 0.0 * ones, 0.0 * ones)
    reach = (algorithm.local.reach, jnp.float32(1.0))[number]
    floor = carrier.fading.floors[number]
    estimate: Any = algorithm.estimate
    # NaN shows in the energy if a precoder reads what users send in a run.
    absent: Any = None
    unknown = jnp.full(users, jnp.nan)

    def one(row: Any) -> Link:
        block = Block(absent, absent, absent, power, reach, row, energies=unknown)
        energy = algorithm.precode.energy(block)
        received = jnp.where(noise == 0, 0.0, noise * energy) / floor**2
        affine = estimate.affine(jnp.sqrt(received) / users, block, ideal_link(users))
        kept = affine.keep - affine.gain
        values = energy, received, affine.gain, affine.offset, kept
        return Link(*(jnp.asarray(x, "float64") for x in values))

    if rows is None:
        return jax.tree.map(lambda x: x * ones, one(None))
    return jax.vmap(one)(rows)


def _plan(rounds: int, algorithm: Algorithm, problem: Any) -> Plan:
    """Return the plan of noise-free runs on the calibration share of the data."""
    data, ones = _doubles(problem.head()), jnp.ones(rounds)
    links = (Link(ones, 0.0 * ones, ones, 0.0 * ones, 0.0 * ones),) * 2
    _, (model, *control) = run(rounds, algorithm, data, _heard(None, problem.users), links)
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
