"""A study as a researcher writes it, for `jaxota sweep`; how much is a chunk can be set."""

import os

import jax
import numpy as np
import optax

import jaxota as jo
from jaxota._core import capacity

if "ROWS" in os.environ:  # trials of all settings in a chunk
    capacity.rows_at_once = lambda *_: int(os.environ["ROWS"])

_numbers = np.random.default_rng(0)
_features, _targets = (_numbers.standard_normal(shape) for shape in ((4, 15, 6), (4, 15)))

# A function of this file, which workers of a cluster cannot import.
_halved = optax.stateless(lambda updates, _: jax.tree.map(lambda u: 0.5 * u, updates))

small = jo.Study(
    {"COTAF": jo.cotaf(0.05, 2, 3), "noisy FedAvg": jo.noisy_fedavg(0.05, 2, 3, _halved)},
    jo.Channel(10.0),
    jo.tasks.regression(_features, _targets),
    rounds=4,
    trials=60,
    over=jo.grid(snr_db=[0.0, 10.0]),
    calibration_trials=5,
)
