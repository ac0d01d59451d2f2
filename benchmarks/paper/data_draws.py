"""Independent draws of the data, each with channel noise of its own.

All settings of a study share the noise of a trial, so that settings are paired. Data draws must not
share it: one unlucky sequence of noise would push all draws the same way, and intervals over draws
would be too narrow.
"""

import jax

import jaxota as jo


@jo.part
class NoisePerDraw:
    """White Gaussian noise, independent for each `draw_number`."""

    draw_number: int = jo.traced(default=0, dtype="int32")

    gaussian = True

    def draw(self, key, shape):
        return jo.Gaussian().draw(jax.random.fold_in(key, self.draw_number), shape)


def data_draws(key, count, first=0):
    """Axis "draw" of `count` data draws, for a channel whose noise is `NoisePerDraw()`.

    Draws are numbered from `first` on, so that a study can avoid the draws of another.
    """
    if not isinstance(count, int) or count < 1:
        raise jo.InputError(f"draws must be a whole number ≥ 1, got {count}")
    numbers = range(first, first + count)
    keys = [jax.random.fold_in(key, number) for number in numbers]
    return jo.axis("draw", {"task.key": keys, "draw_number": numbers}, numbers)


def finite_mean(dataset, score, diverged=float("inf")):
    """Mean of a score over trials, or `diverged` where any trial diverged."""
    mean = dataset[f"{score}_mean"]
    return mean.where((dataset.used == dataset.trials) & (abs(mean) < float("inf")), diverged)
