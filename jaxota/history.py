"""What a simulation yields: every trial's scores, powers, errors and models, labelled."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxota.types import Array, part, static

DIMENSIONS = {
    **dict.fromkeys(("loss", "gap", "accuracy"), ("trial", "evaluation")),
    **dict.fromkeys(("power", "control_power"), ("trial", "round")),
    **dict.fromkeys(("error", "control_error"), ("trial", "round")),
    "participants": ("trial", "round"),
    **dict.fromkeys(("user_power", "user_control_power"), ("trial", "round", "user")),
    **dict.fromkeys(("model", "average"), ("trial", "parameter")),
}


@part
class History:
    """What a simulation yields. Row r is the state after round r; `()` is what has no meaning.

    A sweep puts an axis [setting] before all others, and its values into `settings`.
    """

    loss: Array  # [trial, evaluation] F(θ̂), after rounds every, 2·every, …
    gap: Array  # [trial, evaluation] F(θ̂) − F(θ*)
    accuracy: Array  # [trial, evaluation]
    power: Array  # [trial, round] max_i ‖x_i‖²/P of the model block
    control_power: Array  # [trial, round] the same of the control block
    error: Array  # [trial, round] ‖estimate − true average‖² of the model block
    control_error: Array  # [trial, round]
    participants: Array  # [trial, round] number of users heard
    user_power: Array  # [trial, round, user] every user's ‖x_i‖²/P, on request
    user_control_power: Array  # [trial, round, user]
    model: Array  # [trial, d] the last model
    average: Array  # [trial, d] the weighted average of all models, eq. final_output
    settings: dict[str, Array] = dataclasses.field(default_factory=dict)  # [setting] of each name
    every: int = static(1)

    @property
    def diverged(self) -> np.ndarray:
        """[trial] whether a trial left the finite numbers."""
        scores = [x for x in (self.loss, self.gap, self.accuracy, self.model) if len(x)]
        return ~np.all([np.isfinite(x).all(-1) for x in scores], 0)

    def to_xarray(self):
        """The same as an `xarray.Dataset`, dimensions named and coordinates attached."""
        import xarray  # slow to import, needed here alone

        lead = ("setting",) if self.settings else ()
        held = {k: getattr(self, k) for k in DIMENSIONS if not isinstance(getattr(self, k), tuple)}
        dataset = xarray.Dataset(
            {k: (lead + DIMENSIONS[k], np.asarray(v)) for k, v in held.items()}
        )
        sizes = dataset.sizes
        coordinates = {name: np.arange(size) for name, size in sizes.items()}
        coordinates["round"] = 1 + np.arange(sizes["round"])
        coordinates["evaluation"] = self.every * (1 + np.arange(sizes["evaluation"]))
        for name, values in self.settings.items():
            if values.ndim == 1 and not jnp.issubdtype(values.dtype, jax.dtypes.prng_key):
                coordinates[name] = ("setting", np.asarray(values))
        return dataset.assign_coords(coordinates)
