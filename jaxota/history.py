"""The results of a simulation: scores, powers, errors and models of every trial, labelled."""

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Shaped

import jaxota
from jaxota._core import files, inputs
from jaxota._core.part import Path, describe, part, static
from jaxota._core.state import Checkpoint
from jaxota.errors import InputError

if TYPE_CHECKING:
    import pandas
    import xarray

Scores: TypeAlias = Float[Array | np.ndarray, "*setting trial evaluation"]
ByRound: TypeAlias = Float[Array | np.ndarray, "*setting trial round"] | None
ByUser: TypeAlias = Float[Array | np.ndarray, "*setting trial round user"] | None
ByTrial: TypeAlias = Float[Array | np.ndarray, "*setting trial"] | None
UserScores: TypeAlias = Float[Array | np.ndarray, "*setting trial evaluation user"]
Settings: TypeAlias = Shaped[Array | np.ndarray, "setting *shape"]
Models: TypeAlias = Float[Array | np.ndarray, "*setting trial d"] | None

# The dimensions of every result but the scores, which are [trial, evaluation].
_BY_ROUND = ["power", "control_power", "mean_power", "mean_control_power", "error", "control_error"]
_BY_ROUND += ["deviation", "control_deviation", "participants", "reports", "uses", "energy"]
DIMENSIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_BY_ROUND, ("trial", "round")),
    **dict.fromkeys(("user_power", "user_control_power", "heard"), ("trial", "round", "user")),
    **dict.fromkeys(("model", "average"), ("trial", "parameter")),
    "last_round": ("trial",),
}
LEDGERS = ("uses", "energy", "reports")  # what is spent, and adds up over rounds
# Other names in a table or a dataset, which no score may have.
LABELS = {"setting", "block", "trials", "used", "pairs", "algorithm", "evaluation", "diverged"}
LABELS |= {"trial", "round", "user", "parameter"}
_FORMAT = "jaxota.History 3"
_WITHOUT_CHECKSUM = "jaxota.History 2"


@part
class History:
    """The results of a simulation: row r is the state after round r, None a result without meaning.

    Attributes:
        scores: [trial, evaluation] of each name, after rounds every, 2·every, …
        power, control_power: [trial, round] max_i ‖x_i‖²/P of the model and of the control block.
        mean_power, mean_control_power: [trial, round] mean_i ‖x_i‖²/P over all users, silent ones
            too.
        error, control_error: [trial, round] ‖estimate − true average‖² of either block.
        deviation, control_deviation: [trial, round] √ν, that of the noise on either average.
        participants: [trial, round] number of users heard.
        reports: [trial, round] coded scalars that each user reported beside its blocks.
        uses: [trial, round] channel uses: real symbols that the round takes on the air, over all
            blocks; 0 over error-free links.
        energy: [trial, round] Σ_i ‖x_i‖² of all users and blocks.
        user_power, user_control_power: [trial, round, user] every user's ‖x_i‖²/P, on request.
        heard: [trial, round, user] 1 for users who were heard, else 0, on request.
        user_scores: [trial, evaluation, user] every user's own scores by their names, on request;
            `history["user_loss"]` is that of the name "loss".
        model: [trial, d] the last model.
        average: [trial, d] the weighted average of all models, eq. final_output.
        last_round: [trial] the last round of each trial, where trials may stop early; later rows
            are NaN.
        average_scores: [trial] the scores of that average, where they were asked for.
        settings: [setting] the swept values of each name.
        grid: of a product of settings the names of its axes and their sizes, in the order of
            [setting].
        state: the last state of every trial, on request: `simulate(..., state=...)` continues from
            it.
        every: how many rounds pass between two evaluations.
        done: rounds before the first row, where a run was continued.

    A sweep puts an axis [setting] before all others.
    """

    scores: dict[str, Scores]
    power: ByRound = None
    control_power: ByRound = None
    mean_power: ByRound = None
    mean_control_power: ByRound = None
    error: ByRound = None
    control_error: ByRound = None
    deviation: ByRound = None
    control_deviation: ByRound = None
    participants: ByRound = None
    reports: ByRound = None
    uses: ByRound = None
    energy: ByRound = None
    user_power: ByUser = None
    user_control_power: ByUser = None
    heard: ByUser = None
    user_scores: dict[str, UserScores] = dataclasses.field(default_factory=dict)
    model: Models = None
    average: Models = None
    last_round: ByTrial = None
    average_scores: dict[str, ByTrial] = dataclasses.field(default_factory=dict)
    settings: dict[str, Settings] = dataclasses.field(default_factory=dict)
    state: Checkpoint | None = None
    grid: tuple[tuple[str, int], ...] = static(default=())
    every: int = static(default=1)
    done: int = static(default=0)

    replace = dataclasses.replace
    _setup = None  # what was run; no field: a history that was transformed does not have it

    def _of(self, **setup: Any) -> "History":
        """Note what was run, for `to_xarray` and `save`, and return this history."""
        versions = {"jaxota": jaxota.__version__, "jax": jax.__version__}
        object.__setattr__(self, "_setup", setup | versions)
        return self

    def __repr__(self) -> str:
        """Return a summary of a few lines: sizes, settings, last scores, what diverged."""
        if not all(isinstance(leaf, np.ndarray | jax.Array) for leaf in jax.tree.leaves(self)) or (
            inputs.is_traced(self)
        ):
            return f"History({', '.join(self.scores)})"  # inside a transformation of JAX
        results = {k: (dims, np.shape(values)) for k, (dims, values) in self._results().items()}
        trials, rounds = next(shape[-2:] for dims, shape in results.values() if dims[-1] == "round")
        counts = ("trial", trials), ("round", rounds)
        sizes = self._axes() | {f"{k}s" if size > 1 else k: size for k, size in counts}
        lines = ["History: " + " × ".join(f"{size} {name}" for name, size in sizes.items())]
        for name, labels in self.settings.items():
            if labels.ndim == 1 and not _is_key(labels):
                lines.append(f"  {name}: {_some(labels)}")
        gone = self.diverged
        for name, values in self.scores.items():
            last = np.where(gone, np.nan, np.asarray(values, float)[..., -1])
            means = np.nansum(last, -1) / (~gone).sum(-1).clip(1)
            lines.append(f"  last {name}, mean over trials: {_some(np.atleast_1d(means).ravel())}")
        if gone.any():
            lines.append(f"  diverged: {gone.sum()} of {gone.size} trials")
        return "\n".join([*lines, f"  results: {', '.join(results)}"])

    @property
    def loss(self) -> Scores:
        """The loss F(θ̂)."""
        return self._score("loss")

    @property
    def gap(self) -> Scores:
        """The optimality gap F(θ̂) − F(θ*), where the task knows its optimum."""
        return self._score("gap")

    @property
    def accuracy(self) -> Scores:
        """The share of test samples that are labelled right."""
        return self._score("accuracy")

    def _score(self, name: str) -> Scores:
        if name not in self.scores:
            scores = ", ".join(self.scores) or "none"
            raise AttributeError(f"history has no {name}: the task's scores are {scores}")
        return self.scores[name]

    def __getitem__(self, name: str) -> Any:
        """Return a score or another result by its name: `history["gap"]`."""
        results = self._results()
        if name not in results:
            raise InputError(f"history has no {name!r}: choose from {', '.join(results)}")
        return results[name][1]

    def cumulative(self, name: str) -> Float[np.ndarray, "*setting trial round"]:
        """Return what was spent up to each round: the sum of a result [trial, round] so far.

        Args:
            name: one of `uses`, `energy` and `reports`, for example. The sums of a continued run
                begin with its own first round.
        """
        if DIMENSIONS.get(name) != ("trial", "round"):
            raise InputError(f"name must be one such as {', '.join(LEDGERS)}, got {name!r}")
        return np.cumsum(np.asarray(self[name], np.float64), -1)

    def plot(self, metric: str | None = None, against: str = "round") -> Any:
        """Draw a score, or a result [trial, round], against the round: a matplotlib figure.

        Args:
            metric: its name; by default the gap, the accuracy, the loss or the first score.
            against: "round", or what was spent so far: "uses", "energy" or "reports".
        """
        from jaxota import plots  # loads matplotlib, which is slow

        return plots.curves(self, metric, against=against)

    @property
    def diverged(self) -> Bool[np.ndarray, "*setting trial"]:
        """Whether a trial left the finite numbers, in any score or in its last model."""
        finite = [np.isfinite(x) for x in self.scores.values()]
        if self.last_round is not None:  # nothing diverges where nothing is run
            rounds = self.done + self.every * (1 + np.arange(finite[0].shape[-1]))
            finite = [x | (rounds > self.last_round[..., None]) for x in finite]
        if self.model is not None:
            finite.append(np.isfinite(self.model))
        return ~np.all([x.all(-1) for x in finite], 0)

    def _results(self) -> dict[str, tuple[tuple[str, ...], Any]]:
        """The dimensions and values of every result that there is, by its name in a dataset."""
        along = "round" if self.every == 1 else "evaluation"
        results: dict[str, Any] = {k: (("trial", along), v) for k, v in self.scores.items()}
        results |= {k: (dims, getattr(self, k)) for k, dims in DIMENSIONS.items()}
        by_user = "trial", along, "user"
        results |= {f"user_{k}": (by_user, v) for k, v in self.user_scores.items()}
        results |= {f"average_{k}": (("trial",), v) for k, v in self.average_scores.items()}
        return {k: (dims, values) for k, (dims, values) in results.items() if values is not None}

    def to_xarray(self) -> "xarray.Dataset":
        """Return the same as an `xarray.Dataset`, with named dimensions and coordinates.

        A single swept field is a dimension, `.sel(snr_db=10)`, and so is each axis of a grid;
        several arrays in step share the dimension `setting`. Scores lie along `round`, or along
        `evaluation` where `every` is not 1. The attribute `description` holds, in JSON, every
        setting of the run and the versions that ran it; a history that was changed, as by
        `replace`, has none.
        """
        import xarray  # slow to import, needed here and in `load` alone

        axes = self._axes()

        def unfolded(values: Any) -> np.ndarray:
            array = np.asarray(values)
            return array.reshape(*axes.values(), *array.shape[bool(axes) :])

        results = {k: ((*axes, *d), unfolded(v)) for k, (d, v) in self._results().items()}
        dataset = xarray.Dataset(results)
        sizes = dataset.sizes
        coordinates: dict[Any, Any] = {name: np.arange(size) for name, size in sizes.items()}
        coordinates["round"] = self.done + 1 + np.arange(sizes["round"])
        if "evaluation" in sizes:
            evaluations = 1 + np.arange(sizes["evaluation"])
            coordinates["evaluation"] = self.done + self.every * evaluations
        for name, values in self.settings.items():
            if values.ndim == 1 and not _is_key(values):
                along = name if name in axes else "setting"
                first = tuple(slice(None) if axis == along else 0 for axis in axes)
                coordinates[name] = along, unfolded(values)[first]  # the same along other axes
        described: Any = {} if self._setup is None else {"description": _in_json(self._setup)}
        return dataset.assign_coords(coordinates).assign_attrs(described)

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a `pandas.DataFrame` with a row for each setting, trial and round.

        Columns are the swept values, `trial`, `round`, the scores (NaN in rounds that were not
        scored) and all results [trial, round]; what has another axis is in `to_xarray` alone.
        """
        dataset = self.to_xarray()
        by_round = [k for k, values in dataset.items() if values.dims[-2:] == ("trial", "round")]
        if "evaluation" in dataset.dims:
            scores = dataset[list(self.scores)].rename(evaluation="round")
            scores = scores.reindex_like(dataset["round"])
            dataset = scores.merge(dataset[by_round], compat="override")
        else:
            dataset = dataset[by_round]
        return dataset.to_dataframe([*self._axes(), "trial", "round"]).reset_index()

    def _axes(self) -> dict[str, int]:
        """Names and sizes of the axes that [setting] stands for."""
        if self.grid or not self.settings:
            return dict(self.grid)
        name, values = next(iter(self.settings.items()))
        alone = len(self.settings) == 1 and values.ndim == 1 and not _is_key(values)
        return {name if alone and name not in LABELS else "setting": len(values)}

    def save(self, path: Path) -> None:
        """Write the history to `path`, a NetCDF file labelled as `to_xarray` labels it.

        Swept arrays and random keys, which are no coordinates, are variables of their own.
        """
        path = inputs.path("path", path)
        dataset = self.to_xarray().assign_attrs(
            format=_FORMAT,
            every=self.every,
            done=self.done,
            scores=json.dumps(list(self.scores)),
            average_scores=json.dumps(list(self.average_scores)),
            settings=json.dumps(list(self.settings)),
            grid=json.dumps(self.grid),
        )
        for name in self.settings.keys() - dataset.coords.keys():
            values, attributes = self.settings[name], {}
            if _is_key(values):
                attributes = {"random_key": str(jax.random.key_impl(values))}
                values = jax.random.key_data(values)
            axes = ["setting", *(f"{name}_{axis}" for axis in range(1, values.ndim))]
            dataset[name] = axes, np.asarray(values), attributes
        for number, leaf in enumerate(self.state.leaves if self.state is not None else ()):
            axes = ["trial", *(f"state_{number}_{axis}" for axis in range(1, leaf.ndim))]
            dataset[f"state_{number}"] = axes, np.asarray(leaf)
        dataset.attrs["sha256"] = _digest(dataset)
        # Every bit is kept, NaN included.
        stored: dict[Any, Any] = {k: {"_FillValue": None} for k in dataset.variables}
        with files.replacing(path) as (draft,):
            dataset.to_netcdf(draft, engine="h5netcdf", encoding=stored)

    @classmethod
    def load(cls, path: Path) -> "History":
        """Read a history that `save` wrote."""
        import h5py
        import xarray

        path = inputs.path("path", path)
        try:
            with h5py.File(path) as file:  # where this fails, h5netcdf says more than one line
                form = dict(file.attrs).get("format")
                if form not in (_FORMAT, _WITHOUT_CHECKSUM):
                    raise ValueError(f"its format is not {_FORMAT!r}")
            dataset = xarray.load_dataset(path, engine="h5netcdf", decode_cf=False)
            if form == _FORMAT and dataset.attrs.get("sha256") != _digest(dataset):
                raise ValueError("its checksum does not fit")
            kinds = ("scores", "average_scores", "settings", "grid")
            names = {k: json.loads(dataset.attrs[k]) for k in kinds}
            grid = tuple((axis, size) for axis, size in names["grid"])

            def values(name: str) -> np.ndarray:
                """Return a stored variable as [setting, …]."""
                array = dataset[name].values
                return array.reshape(-1, *array.shape[len(grid) :]) if grid else array

            history = cls(
                scores={name: values(name) for name in names["scores"]},
                user_scores={k.removeprefix("user_"): values(k) for k in _of_users(dataset)},
                average_scores={k: values(f"average_{k}") for k in names["average_scores"]},
                settings={name: _setting(dataset[name], grid) for name in names["settings"]},
                grid=grid,
                state=_stored_state(dataset),
                every=int(dataset.attrs["every"]),
                done=int(dataset.attrs.get("done", 0)),  # absent in older files
                **{name: values(name) if name in dataset else None for name in DIMENSIONS},
            )
            setup = json.loads(dataset.attrs.get("description", "null"))
            object.__setattr__(history, "_setup", setup)
            return history
        except Exception as error:  # of h5py, h5netcdf or xarray, and of many lines
            fault = f"{path} is not a history that History.save wrote"
            raise InputError(f"history: {fault} ({inputs.first_line(error)})") from None


def _digest(dataset: "xarray.Dataset") -> str:
    """Return a checksum of all that `load` reads of a dataset."""
    digest = hashlib.sha256()
    for name in ("every", "done", "scores", "average_scores", "settings", "grid"):
        digest.update(f"{name} {dataset.attrs[name]} ".encode())
    for name in sorted(map(str, dataset.variables)):
        variable = dataset.variables[name]
        values = np.asarray(variable.values)
        text = values.dtype.kind in "OU"  # text is read as objects
        about = variable.dims, values.shape, text or values.dtype.str
        digest.update(f"{name} {about} {variable.attrs.get('random_key')} ".encode())
        digest.update(json.dumps(values.tolist()).encode() if text else values.tobytes())
    return digest.hexdigest()


def _in_json(setup: Any) -> str:
    return json.dumps(describe(setup))


def _some(values: Any) -> str:
    """Write a few values, or the least and the largest of many numbers."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        return ", ".join(dict.fromkeys(map(str, array)))
    few = array if len(array) <= 4 else [array.min(), array.max()]
    return (", " if len(array) <= 4 else " … ").join(f"{x:.4g}" for x in few)


def _is_key(values: Any) -> bool:
    return jnp.issubdtype(values.dtype, jax.dtypes.prng_key)


def _of_users(dataset: "xarray.Dataset") -> list[str]:
    """Return the names of users' scores in a stored history."""
    by_user = [str(k) for k in dataset.data_vars if dataset[k].dims[-1:] == ("user",)]
    return [name for name in by_user if name not in DIMENSIONS]


def _stored_state(dataset: "xarray.Dataset") -> Checkpoint | None:
    """Return the state in a stored history, None without one."""
    count = sum(str(name).startswith("state_") for name in dataset)
    leaves = tuple(jnp.asarray(dataset[f"state_{number}"].values) for number in range(count))
    rounds = dataset.sizes["round"] + int(dataset.attrs.get("done", 0))
    return Checkpoint(leaves, rounds) if leaves else None


def _setting(variable: "xarray.DataArray", grid: tuple[tuple[str, int], ...]) -> Settings:
    """Return the swept values of a stored variable."""
    if grid:  # one value along its axis, the same along the others
        shape = [size if axis == variable.dims[0] else 1 for axis, size in grid]
        sizes = [size for _, size in grid]
        return np.broadcast_to(variable.values.reshape(shape), sizes).ravel()
    if "random_key" not in variable.attrs:
        return variable.values
    return jax.random.wrap_key_data(jnp.asarray(variable.values), impl=variable.attrs["random_key"])
