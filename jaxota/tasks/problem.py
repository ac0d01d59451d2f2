"""Protocols of a task and of its problem: the data and the gradients that the engine works with."""

from typing import Any, Protocol

import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from jaxota._core.part import PerUser, Scalar, Vector, optional


class Problem(Protocol):
    """The learning problem of one trial, as `Task.problem` returns it.

    One with `weights` [user] has F = Σ_i w_i f_i / Σ_i w_i; see `jo.tasks.weighted`.
    """

    @property
    def users(self) -> int:
        """N, the number of users."""

    @property
    def dim(self) -> int:
        """d, the number of model coordinates."""

    @property
    def counts(self) -> Int[Array, "user"]:
        """Number of samples of each user."""

    @property
    def strong_convexity(self) -> Scalar | float:
        """μ, or 0 where none is known; it sets the weights of a run's averaged model."""

    def init(self, key: PRNGKeyArray) -> Vector:
        """Draw the initial model [d]."""

    def gradient(self, model: Vector, user: Any, samples: Int[Array, "batch"]) -> Vector:
        """Return the mean gradient [d] of these `samples` of one `user`."""

    def full_gradient(self, model: Vector, user: Any) -> Vector:
        """Return ∇f_i [d] over all samples of one `user`."""

    def score(self, model: Vector) -> dict[str, Scalar]:
        """Return the metrics of a model by name."""

    @optional
    def user_scores(self, model: Vector) -> dict[str, PerUser]:
        """Return the users' own metrics [user] by name; by default none, and a run refuses them."""
        return {}

    def head(self) -> "Problem":
        """Return the first fifth of every user's samples, the calibration subset."""


class Layout(Protocol):
    """Another representation of a model during local steps, where a flat vector is slower.

    A problem that has one offers it as `layout`; all other stages see vectors [d].
    """

    def unravel(self, model: Vector) -> Any:
        """Return the model as this layout's pytree of arrays, a linear map of the vector."""

    def ravel(self, params: Any) -> Vector:
        """Return the vector [d] of a model in this layout, the inverse of `unravel`."""

    def gradient(self, params: Any, user: Any, samples: Int[Array, "batch"]) -> Any:
        """Return `Problem.gradient` in this layout."""

    def full_gradient(self, params: Any, user: Any) -> Any:
        """Return `Problem.full_gradient` in this layout."""


class Cohort:
    """The problem of a cohort: its users 0, 1, … are `members` [user] of the whole problem's.

    Everything else, such as the initial model and the scores, is that of the whole problem.
    """

    def __init__(self, problem: Problem, members: Int[Array, "user"]) -> None:
        self._whole, self.members = problem, members
        self.users, self.counts = len(members), problem.counts[members]
        made = getattr(problem, "cohort", None)
        if made is not None:  # data that are made when they are needed
            self._data, self._places = made(members), jnp.arange(len(members))
        else:
            self._data, self._places = problem, members
        if hasattr(self._data, "layout"):
            self.layout = _CohortLayout(self._data.layout, self._places)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)

    def gradient(self, model: Vector, user: Any, samples: Int[Array, "batch"]) -> Vector:
        return self._data.gradient(model, self._places[user], samples)

    def full_gradient(self, model: Vector, user: Any) -> Vector:
        return self._data.full_gradient(model, self._places[user])


class _CohortLayout:
    """The layout of the whole problem, with the cohort's users."""

    def __init__(self, layout: Layout, places: Int[Array, "user"]) -> None:
        self._layout, self._places = layout, places
        self.unravel, self.ravel = layout.unravel, layout.ravel

    def gradient(self, params: Any, user: Any, samples: Int[Array, "batch"]) -> Any:
        return self._layout.gradient(params, self._places[user], samples)

    def full_gradient(self, params: Any, user: Any) -> Any:
        return self._layout.full_gradient(params, self._places[user])


def number_of(problem: Any, user: Any) -> Any:
    """Return a user's number among all users, on which its random draws depend."""
    members = getattr(problem, "members", None)
    return user if members is None else members[user]


class Task(Protocol):
    """A learning task and its data: one of `jaxota.tasks`, or a part of your own."""

    @property
    def users(self) -> int:
        """N, the number of users."""

    @property
    def dim(self) -> int:
        """d, the number of model coordinates."""

    def problem(self, trial: Any) -> Problem:
        """Return the problem of trial number `trial`."""

    def floats_per_trial(self, batch: int) -> int:
        """Bound the floats that a trial's data occupy when users draw `batch` samples at once."""
