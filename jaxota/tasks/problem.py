"""What a task offers the engine: protocols for tasks of your own, as `jaxota.stages` has them."""

from typing import Any, NamedTuple, Protocol

from jaxtyping import Array, Int, PRNGKeyArray

from jaxota._core.part import Scalar, Vector


class Problem(Protocol):
    """What a task gives for one trial, and the engine computes with."""

    @property
    def users(self) -> int:
        """N."""

    @property
    def dim(self) -> int:
        """d, the number of a model's coordinates."""

    @property
    def counts(self) -> Int[Array, "user"]:
        """How many samples each user holds."""

    @property
    def strong_convexity(self) -> Scalar | float:
        """μ, 0 where none is known; it weighs the average of a run."""

    def init(self, key: PRNGKeyArray) -> Vector:
        """The model to start from."""

    def gradient(self, model: Vector, user: Any, samples: Int[Array, "batch"]) -> Vector:
        """The mean gradient of these `samples` of one `user`."""

    def full_gradient(self, model: Vector, user: Any) -> Vector:
        """∇f_i over all samples of one `user`."""

    def score(self, model: Vector) -> dict[str, Scalar]:
        """Numbers by their names."""

    def head(self) -> "Problem":
        """The first fifth of every user's samples, for calibration."""


class Layout(Protocol):
    """How users hold a model while they take their steps, where a vector is the slower way.

    A problem that has one offers it as `layout`. Everybody else sees vectors.
    """

    def lay(self, model: Vector) -> Any:
        """The model as it is held: any pytree of arrays, linear in the model."""

    def flat(self, held: Any) -> Vector:
        """The way back."""

    def gradient(self, held: Any, user: Any, samples: Int[Array, "batch"]) -> Any:
        """`Problem.gradient` of a model that is held so, itself held so."""

    def full_gradient(self, held: Any, user: Any) -> Any:
        """`Problem.full_gradient`, likewise."""


class Vectors(NamedTuple):
    """The layout of a problem without one of its own."""

    problem: Problem

    def lay(self, model: Vector) -> Vector:
        return model

    def flat(self, held: Vector) -> Vector:
        return held

    def gradient(self, held: Vector, user: Any, samples: Int[Array, "batch"]) -> Vector:
        return self.problem.gradient(held, user, samples)

    def full_gradient(self, held: Vector, user: Any) -> Vector:
        return self.problem.full_gradient(held, user)


def layout(problem: Problem) -> Layout:
    """The problem's own, or vectors."""
    return getattr(problem, "layout", Vectors(problem))


class Task(Protocol):
    """What is learned, and who holds which data: one of `jaxota.tasks`, or a part of your own."""

    @property
    def users(self) -> int:
        """N."""

    @property
    def dim(self) -> int:
        """D."""

    def problem(self, trial: Any) -> Problem:
        """What the trial of this number computes with."""

    def floats_per_trial(self, batch: int) -> int:
        """A bound on what a trial's data take in memory, if users draw `batch` samples at once."""
