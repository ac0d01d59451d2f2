"""WISE's local rule and server; numbers in brackets are the steps of docs/wise.md.

The server follows the innovation y, which is what it received beyond its own model, by a gain that
grows while innovations agree. It tracks their principal direction; users report their coefficients
along it, coded, and send the rest over the air.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from jaxota._core.part import Memory, PerUser, Scalar, Traced, Vector, part, static, traced
from jaxota._core.state import State
from jaxota.errors import InputError
from jaxota.stages.answers import Link
from jaxota.stages.batches import Params, layout_of
from jaxota.stages.local import SGD, LocalUpdate, no_memory, norms, walk
from jaxota.stages.server import Aggregate, Server
from jaxota.tasks.problem import Problem

if TYPE_CHECKING:
    from jaxota._core.arguments import Setting


@part
class PathCorrectedSGD:
    """SGD along a path corrected against drift; the plain gradients along that path are sent.

    Attributes:
        trusting: whether the path is corrected at all (1).
        striding: whether a user whose path expands takes shorter steps (4).
        gradients: whether −ηΣg is sent, the plain gradients along the path (3), or the displacement
            at its end.
        coded: whether the coefficient along the server's direction is reported instead of sent (5).

    The other fields are those of `SGD`. The server must broadcast `y`, `trust` and `principal`, as
    `Innovations` does.
    """

    step_size: Traced[Scalar] = traced(above=0.0)
    steps: int = static(at_least=1)
    batch: int | None = static(default=None, at_least=1)
    trusting: bool = static(default=True, one_of=(True, False))
    striding: bool = static(default=True, one_of=(True, False))
    gradients: bool = static(default=True, one_of=(True, False))
    coded: bool = static(default=True, one_of=(True, False))

    controlled = plain = False
    draws, reach, replace = SGD.draws, SGD.reach, dataclasses.replace

    def start(
        self, key: PRNGKeyArray, problem: Problem, model: Vector
    ) -> tuple[None, dict[str, Array]]:
        zeros = jnp.zeros(problem.users, "float32")
        return None, {
            "gradient": jnp.zeros((problem.users, model.size), "float32"),  # h_i
            "growth": zeros,  # q_i
            "rounds": zeros,
            "stride": zeros + 1.0,  # a_i
        }

    def __call__(
        self, k_batch: PRNGKeyArray, k_control: PRNGKeyArray, problem: Problem, state: State
    ) -> LocalUpdate:
        server = state.server
        if not isinstance(server, dict) or not {"y", "trust", "principal"} <= server.keys():
            raise InputError(
                "algorithm.server must broadcast y, trust and principal for this algorithm.local, "
                "as jo.Innovations() does"
            )
        layout = layout_of(problem)
        mean_gradient = -server["y"] / (self.steps * self.step_size)  # ĥ

        def user(i: Int[Array, ""], memory: dict[str, Array]) -> tuple[Vector, Vector, Memory]:
            correction = server["trust"] * (mean_gradient - memory["gradient"])  # (1)
            correction = correction if self.trusting else jnp.zeros_like(correction)
            shift = layout.unravel(correction)
            pace = memory["stride"] * self.step_size  # a_i·η; what is sent keeps the common η

            def move(moved: Params, params: Params, gradient: Params, total: Params) -> Any:  # (2)
                u = jax.tree.map(jnp.add, gradient, shift)
                moved = jax.tree.map(lambda m, direction: m - pace * direction, moved, u)
                square = sum(jnp.sum(x**2) for x in jax.tree.leaves(u))
                return moved, jax.tree.map(jnp.add, total, gradient), jnp.asarray(square)

            zero = jax.tree.map(jnp.zeros_like, shift)
            # The draws are those of plain SGD: runs are paired.
            moved, total, squares = walk(self, k_batch, problem, layout, i, state.model, zero, move)
            total = layout.ravel(total)
            # (3) Plain gradients, not the displacement: an error in the correction bends the path,
            # but is not sent itself.
            after = memory | {"gradient": total / self.steps, "rounds": memory["rounds"] + 1.0}
            if self.striding and self.steps > 1:
                after |= _adapted_stride(squares, memory)
            return -self.step_size * total, moved, after

        sums, moved, memory = jax.vmap(user)(jnp.arange(problem.users), state.local)
        sent = sums if self.gradients else moved
        reports = {"norm": norms(sent)}
        if self.coded:  # (5)
            direction = coded_direction(server["principal"])
            reports["coefficient"] = (sent * direction[None]).sum(-1)
            sent = sent - reports["coefficient"][:, None] * direction[None]
        return LocalUpdate(sent, memory=memory, moved=moved, reports=reports)

    def remember(self, before: Memory, after: Memory, heard: PerUser) -> Memory:
        # All of it describes a user's own path, whether or not the server heard of it; the next
        # correction then starts from the newest gradient.
        return after

    def check(self, path: str, setting: "Setting") -> None:
        if getattr(setting.task, "weights", None) is not None:
            raise InputError("task.weights must be None for WISE, which counts all users the same")
        if self.coded and setting.task.dim == 1:
            raise InputError(
                f"{path}.coded must be False for a model of one parameter, whose whole update "
                "would be a coded scalar, with nothing sent over the air"
            )


def _adapted_stride(squares: Float[Array, "step"], memory: dict[str, Array]) -> dict[str, Array]:
    """Shorten the stride of a path on which ‖u‖² [step] grows, lengthen that of others (4)."""
    half = squares.size // 2
    late, early = squares[-half:].sum(), squares[:half].sum()
    # Clipped, so that a single wild round cannot stop a user for many rounds.
    grown = jnp.where((late > 0) & (early > 0), jnp.log(late) - jnp.log(early), 0.0).clip(-5.0, 5.0)
    growth = jnp.where(memory["rounds"] == 0, grown, (memory["growth"] + grown) / 2)
    factor = jnp.exp(0.02 - jnp.maximum(growth - 0.25, 0.0))
    return {"growth": growth, "stride": (memory["stride"] * factor).clip(1e-4, 1.0)}


Factor: TypeAlias = tuple[Scalar, Memory]  # γ or δ, and memory


class Gain(Protocol):
    """A rule for γ, the factor by which the server follows an innovation."""

    def start(self, model: Vector) -> Memory:
        """Return the memory before round 1."""

    def __call__(self, y: Vector, size: Scalar, noise: Scalar, memory: Memory) -> Factor:
        """Return γ and memory, from the innovation y [d], the mean ‖s_i‖ of the users and dν."""


class Average(Protocol):
    """A rule for δ, the factor by which the output follows the model."""

    def start(self, model: Vector) -> Memory:
        """Return the memory before round 1."""

    def __call__(self, y: Vector, lead: Vector, memory: Memory) -> Factor:
        """Return δ and memory, from the innovation y [d] and the lead [d] of model over output."""


@part
class Whitening:
    """A gain that grows while innovations agree, and falls while they oppose each other (11–13).

    Attributes:
        rate: factor of z + 0.1 in the change of log γ, after the first few rounds.
        longest: bound on a step γ‖y‖, in units of the running mean of steps. A gain that grew while
            all innovations agreed may be too large for a steep direction, and innovations show it
            only when it is late.
    """

    rate: Traced[Scalar] = traced(default=0.2, at_least=0.0)
    longest: Traced[Scalar] = traced(default=1.5, above=0.0, infinite=True)

    def start(self, model: Vector) -> dict[str, Array]:
        one, zero = jnp.float32(1.0), jnp.float32(0.0)
        return {"gain": one, "trend": 0.0 * model, "step": zero, "rounds": zero}

    def __call__(self, y: Vector, size: Scalar, noise: Scalar, memory: Memory) -> Factor:
        rounds, length = memory["rounds"] + 1.0, jnp.linalg.norm(y)
        # The users' mean norm bounds the norm of the signal: a first guess before any trend (12).
        first = jnp.sqrt(_signal_share(size**2, noise, otherwise=1.0))
        gain = jnp.where(rounds == 1, first, memory["gain"])
        agreement = similarity(y, memory["trend"]) + 0.1
        gain = gain * jnp.exp(jnp.maximum(self.rate, 1.0 / rounds) * agreement)
        longest = jnp.where(rounds == 1, jnp.inf, self.longest * memory["step"])
        gain = jnp.where(gain * length > longest, longest / length, gain)
        step = jnp.where(rounds == 1, gain * length, 0.8 * memory["step"] + 0.2 * gain * length)
        trend = 0.8 * memory["trend"] + 0.2 * y
        return gain, {"gain": gain, "trend": trend, "step": step, "rounds": rounds}


@part
class Fixed:
    """One gain γ for all rounds.

    Attributes:
        gain: γ.
    """

    gain: Traced[Scalar] = traced(default=1.0, above=0.0)

    start = no_memory

    def __call__(self, y: Vector, size: Scalar, noise: Scalar, memory: Memory) -> Factor:
        return self.gain, memory


@part
class Switching:
    """An average of models that switches itself off while the model still travels (11, 14).

    Attributes:
        rate: factor of z − ½ in the change of log δ in a round.
    """

    rate: Traced[Scalar] = traced(default=0.2, at_least=0.0)

    def start(self, model: Vector) -> dict[str, Array]:
        return {"share": jnp.float32(0.5), "rounds": jnp.float32(0.0)}

    def __call__(self, y: Vector, lead: Vector, memory: Memory) -> Factor:
        rounds = memory["rounds"] + 1.0
        share = memory["share"] * jnp.exp(self.rate * (similarity(y, lead) - 0.5))
        # The floor 3/(r + 2) is polynomial-decay averaging, whose weights grow as r².
        share = share.clip(jnp.minimum(3.0 / (rounds + 2.0), 1.0), 1.0)
        return share, {"share": share, "rounds": rounds}


@part
class Last:
    """No average: the output is the last model."""

    start = no_memory

    def __call__(self, y: Vector, lead: Vector, memory: Memory) -> Factor:
        return jnp.float32(1.0), memory


@part
class Innovations:
    """A server that follows the innovation y by a gain, and hands out an average of its models.

    Attributes:
        gain: the rule for γ, `Whitening()` or `Fixed()`.
        average: the rule for δ, `Switching()` or `Last()`.

    It answers the level τ to `Clipped` (8). To `PathCorrectedSGD`, which reports the norms that the
    server needs, it broadcasts y, the trust λ in it (10) and the principal direction of all
    innovations so far (16).
    """

    gain: Gain = Whitening()
    average: Average = Switching()

    choose = Server.choose
    cohorts = True

    def start(self, model: Vector) -> dict[str, Any]:
        zeros = jnp.zeros_like(model)
        return {
            "y": zeros,
            "trust": jnp.float32(0.0),
            "principal": zeros,
            "output": model,
            "gain": self.gain.start(model),
            "average": self.average.start(model),
        }

    def answer(
        self, memory: Memory, reports: dict[str, PerUser], noise: Scalar, link: Link
    ) -> dict[str, Scalar]:
        if "size" not in reports:  # nobody clips
            return {}
        # (8) A low level cuts signal off, a high one amplifies noise: the least sum of 20 levels.
        size, heard = reports["size"], link.heard > 0
        least, most = jnp.where(heard, size, jnp.inf).min(), jnp.where(heard, size, 0.0).max()
        levels = jnp.linspace(jnp.minimum(least, most), most, 20)  # finite if nobody is heard
        cut = jax.vmap(lambda level: link.mean(jnp.maximum(size - level, 0.0)))(levels)
        noise_energy = memory["y"].size * noise / (link.count * link.floor) ** 2
        return {"level": levels[jnp.argmin(cut**2 + noise_energy * levels**2)]}

    def __call__(self, aggregate: Aggregate, state: State) -> tuple[Vector, dict[str, Any]]:
        old, reports = state.server, aggregate.side.reports
        if "norm" not in reports:
            raise InputError(
                "algorithm.local must report norms to jo.Innovations, as jo.PathCorrectedSGD(...) "
                "does"
            )
        y, direction = aggregate.estimate - state.model, coded_direction(old["principal"])  # (9)
        if "coefficient" in reports:
            y = y + aggregate.link.mean(reports["coefficient"]) * direction
        norms, noise = reports["norm"], y.size * aggregate.deviation**2
        # (10) mean ‖s_i‖² − ‖mean s_i‖², the spread between users; ‖y‖² − dν estimates the latter.
        spread = aggregate.link.mean(norms**2) - jnp.maximum(jnp.sum(y**2) - noise, 0.0)
        gain, gain_memory = self.gain(y, aggregate.link.mean(norms), noise, old["gain"])
        share, average_memory = self.average(y, state.model - old["output"], old["average"])
        model = state.model + gain * y  # (15)
        return model, {
            "y": y,
            "trust": _signal_share(jnp.maximum(spread, 0.0), noise, otherwise=0.0),
            # (16) Oja's rule: the power method on the sum of yyᵀ, one factor a round.
            "principal": old["principal"] + jnp.vdot(y, direction) * y,
            # Not output + share·(model − output): with share 1 this is the model to the bit.
            "output": model - (1.0 - share) * (model - old["output"]),
            "gain": gain_memory,
            "average": average_memory,
        }

    def output(self, model: Vector, memory: Memory) -> Vector:
        return memory["output"]


def coded_direction(principal: Vector) -> Vector:
    """Return the unit vector along the principal direction, along the ones before there is any."""
    largest = jnp.abs(principal).max()  # divided out, as ‖y‖⁴ may be no float32
    scaled = jnp.where(largest > 0, principal / jnp.where(largest > 0, largest, 1.0), 1.0)
    return scaled / jnp.linalg.norm(scaled)


def similarity(a: Vector, b: Vector) -> Scalar:
    """Return z(a, b) = tanh(½√d·cos(a, b)), 0 where one of them is 0 (11)."""
    # The cosine of independent vectors has deviation 1/√d, so that z is of one scale for any d.
    product = jnp.linalg.norm(a) * jnp.linalg.norm(b)
    cosine = jnp.where(product > 0, jnp.vdot(a, b) / jnp.where(product > 0, product, 1.0), 0.0)
    return jnp.tanh(0.5 * a.size**0.5 * cosine)


def _signal_share(signal: Scalar, noise: Scalar, otherwise: float) -> Scalar:
    """Return signal/(signal + noise), `otherwise` where both are 0."""
    total = signal + noise
    return jnp.where(total > 0, signal / jnp.where(total > 0, total, 1.0), otherwise)
