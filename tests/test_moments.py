"""Means of blocks, merged, are the means of all trials."""

import jax
import numpy as np
import pytest
import xarray

import jaxota as jo
from jaxota.study.layout import Layout, merge_blocks, moment_dims, moments

TRIALS, SCORES = 23, ["gap", "loss"]
SIZES = {"algorithm": 3, "snr_db": 2, "trial": TRIALS, "evaluation": 4, "round": 8, "parameter": 5}
RESULTS: dict[str, tuple[str, ...]] = {
    "gap": ("evaluation",),
    "loss": ("evaluation",),
    "power": ("round",),
    "control_power": ("round",),
    "model": ("parameter",),
    "average_gap": (),
    "average_loss": (),
}


@pytest.fixture(scope="module")
def arrays():
    """Results of which some trials diverged: in a score, in the model, all of one setting."""
    rng = np.random.default_rng(0)
    lead = ("algorithm", "snr_db", "trial")
    shapes = {name: [SIZES[d] for d in (*lead, *dims)] for name, dims in RESULTS.items()}
    found = {name: 100 + rng.standard_normal(shape) for name, shape in shapes.items()}
    found = {name: values.astype(np.float32) for name, values in found.items()}
    found["gap"][1, 0, 3, 2] = np.inf
    found["loss"][0, 1, [4, 17], :] = np.nan  # of the reference
    found["model"][1, 1, 9] = np.nan
    found["gap"][2, 0] = np.nan
    found["average_gap"][1, 0, 3] = np.inf
    found["control_power"][0] = np.nan  # has no controls
    return found


def _moments(arrays, reference=0):
    """Return moments [algorithm, setting, 1, …] of arrays [algorithm, setting, trial, …]."""
    results = [{name: values[a] for name, values in arrays.items()} for a in range(3)]
    reduced = moments(results, SCORES, reference)
    return {name: np.stack([values[name] for values in reduced]) for name in reduced[0]}


def _merged(arrays, block, reference=0, order=1):
    kept = _kept(block)
    found = kept.empty()
    for number in range(kept.count)[::order]:
        setting, trials = kept.region(number)["snr_db"], slice(*kept.trials_of(number))
        mine = {name: values[:, setting, trials] for name, values in arrays.items()}
        told = _moments(mine, reference)
        assert told.keys() == kept.dims.keys()
        kept.put(number, told, into=found)
    return merge_blocks(_dataset(kept, found))


def _kept(block, settings_per_block=1, trials=TRIALS):
    """Return the layout of moments over blocks of so many trials."""
    sizes = SIZES | {"block": -(-trials // block)}
    results = moment_dims(RESULTS, SCORES)
    dims = {name: ("algorithm", "snr_db", "block", *rest) for name, rest in results.items()}
    blocks = {"snr_db": settings_per_block, "block": 1}
    return Layout(sizes, blocks, dims, {"snr_db": ("snr_db", [0, 10])}, trials, block)


def _dataset(layout, arrays):
    variables = {name: (dims, arrays[name]) for name, dims in layout.dims.items()}
    return xarray.Dataset(variables, layout.coords)


def _finite(arrays):
    """[algorithm, snr_db, trial] which trials count."""
    return np.all([np.isfinite(arrays[k]).all(-1) for k in ("gap", "loss", "model")], 0)


@pytest.mark.parametrize("block", [1, 2, 5, 22, TRIALS])
@pytest.mark.parametrize("reference", [0, 1])
def test_merged_moments_are_those_of_all_trials(arrays, block, reference):
    """To 1e-12 of them, however trials are cut, without those that diverged."""
    data, finite = _merged(arrays, block, reference), _finite(arrays)
    np.testing.assert_array_equal(data.trials, np.full((3, 2), TRIALS))
    np.testing.assert_array_equal(data.used, finite.sum(-1))
    np.testing.assert_array_equal(data.pairs, (finite & finite[reference]).sum(-1))
    assert data.used.values.min() == 0 and not {"model_mean", "block"} & {*data, *data.dims}
    for name in ("gap", "loss", "power", "control_power", "average_gap", "average_loss"):
        values = arrays[name].astype(np.float64)
        kinds = [("", values, finite)]
        if name.removeprefix("average_") in SCORES:
            with np.errstate(invalid="ignore"):  # inf − inf, which is not used
                apart = values - values[reference]
            kinds.append(("_difference", apart, finite & finite[reference]))
        for kind, numbers, used in kinds:
            for a, s in np.ndindex(3, 2):
                rows = numbers[a, s][used[a, s]]
                mean, var = (data[f"{name}{kind}_{what}"].values[a, s] for what in ("mean", "var"))
                if not len(rows):
                    assert np.isnan(mean).all() and np.isnan(var).all()
                    continue
                np.testing.assert_allclose(mean, rows.mean(0), rtol=1e-12, atol=1e-14)
                np.testing.assert_allclose(var, rows.var(0, ddof=1), rtol=1e-12, atol=1e-26)


def test_the_order_of_blocks_does_not_matter(arrays):
    xarray.testing.assert_identical(_merged(arrays, 4), _merged(arrays, 4, order=-1))


def test_one_trial_has_no_variance(arrays):
    few = {k: v[:, :, :1] for k, v in arrays.items()}
    told = _moments(few)
    data = merge_blocks(_dataset(_kept(1, 2, trials=1), told))
    assert (
        np.isnan(data.gap_var).all()
        and (data.gap_mean.sel(algorithm=0) == few["gap"][0, :, 0]).all()
    )


def test_missing_blocks_are_left_out_of_the_mean(arrays):
    """The mean is that of the trials that are there, and says how many these are."""
    half = {k: v[:, :, :10] for k, v in arrays.items()}
    kept = _kept(10, 2)
    found = kept.empty()
    kept.put(0, _moments(half), into=found)
    data, finite = merge_blocks(_dataset(kept, found)), _finite(half)
    np.testing.assert_array_equal(data.trials, np.full((3, 2), 10))
    rows = half["gap"][1, 1].astype(np.float64)[finite[1, 1]]
    np.testing.assert_allclose(data.gap_mean[1, 1], rows.mean(0), rtol=1e-12)


CONSTANT = jo.noisy_fedavg(1e-2, 2, 2, precode=jo.Constant(1.0))
STUDY = jo.Study(
    {"constant": CONSTANT, "FedAvg": jo.fedavg(1e-2, 2, 2)},
    jo.Channel(),
    jo.tasks.synthetic_regression(jax.random.key(1), 3, 6, 2),
    rounds=3,
    trials=6,
    keep="mean",
)


def test_kept_means_are_the_means_of_kept_trials():
    study = STUDY.replace(over=jo.grid(snr_db=[0, 10]))
    kept, every = study.run(), study.replace(keep="trials").run()
    assert kept.attrs["keep"] == "mean" and "trial" not in kept.dims and "gap" not in kept
    np.testing.assert_array_equal(kept.snr_db, [0, 10])
    for name in ("gap", "loss", "power", "error", "average_gap"):
        values = every[name].astype("float64")
        np.testing.assert_allclose(kept[f"{name}_mean"], values.mean("trial"), rtol=1e-5, atol=1e-9)
    apart = (every.gap - every.gap.sel(algorithm="constant", drop=True)).astype("float64")
    np.testing.assert_allclose(kept.gap_difference_mean, apart.mean("trial"), rtol=1e-3, atol=1e-6)


def test_shorter_models_do_not_count_as_diverged():
    """The shorter ones are filled up, and that is no divergence."""
    kept = STUDY.replace(over=jo.grid(dim=[2, 3])).run()
    np.testing.assert_array_equal(kept.used, np.full((2, 2), 6))
    assert np.isfinite(kept.gap_mean).all()
