"""What every algorithm and every channel owes: one contract, tested for all of them."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import jaxota as jo
from jaxota._core.arguments import experiment
from jaxota.simulation import run

pytestmark = pytest.mark.slow

LOCAL = {"step_size": 1e-2, "steps": 2, "batch": 2}
ALGORITHMS = {
    "fedavg": jo.fedavg(**LOCAL),
    "scaffold": jo.scaffold(**LOCAL),
    "noisy_fedavg": jo.noisy_fedavg(**LOCAL),
    "cotaf": jo.cotaf(**LOCAL),
    "baaf": jo.baaf(**LOCAL),
    "cobaaf": jo.cobaaf(**LOCAL),
    "cobaaf, other parts": jo.cobaaf(
        **LOCAL,
        control_batch=2,
        warm_start=True,
        precode=jo.Online(),
        estimate=jo.JamesStein(),
    ),
    "cobaaf, option 2": jo.cobaaf(**LOCAL, control_option=2, estimate=jo.PooledMMSE()),
    "cobaaf, prior on updates": jo.cobaaf(**LOCAL, estimate=jo.UpdateMMSE()),
    "wise": jo.wise(**LOCAL),
    "baaf, proximal": jo.baaf(**LOCAL).replace(local=jo.Proximal(**LOCAL, mu=0.5)),
}
ONLINE = {**LOCAL, "precode": jo.Online()}
METHODS = {
    "top-k": jo.cobaaf(**ONLINE, compress=jo.TopK(0.5), estimate=jo.Identity()),
    "obda": jo.cotaf(**ONLINE, compress=jo.OneBit(0.1)),
    "directions": jo.cotaf(**ONLINE, compress=jo.Directions(3)),
    "a-dsgd": jo.cotaf(
        **LOCAL, precode=jo.FullPower(), compress=jo.Centred(jo.Projected(5, share=0.5))
    ),
}
METHODS |= {"adota": jo.cotaf(**ONLINE, server=jo.Adota(0.1)), "feddyn": jo.feddyn(**ONLINE)}
METHODS |= {"median": jo.cotaf(**ONLINE, compress=jo.Liars(1, rest=jo.GroupMedian(2)))}
METHODS |= {"airfl-mem": jo.cotaf(**ONLINE, compress=jo.Centred(jo.Unheard()))}
METHODS |= {
    "fsk": jo.cotaf(**ONLINE, compress=jo.FrequencyShift(0.1)).replace(medium=jo.EnergyDetection()),
    "type-based": jo.cotaf(**ONLINE, compress=jo.TypeBased(5, "median")),
}
ALGORITHMS |= METHODS
CHANNELS = {
    "ideal": jo.Channel(snr_db=np.inf),
    "noisy": jo.Channel(snr_db=-10.0, snr_per="symbol", power=2.0, control_power=0.5),
    "rayleigh": jo.Channel(fading=jo.rayleigh(csi_error=0.01, correlation=0.5)),
    "rician": jo.Channel(fading=jo.rician(2.0), gains=[0.5, 1.0, 2.0, 1.0]),
    "nakagami": jo.Channel(fading=jo.nakagami(1.5)),
    "participants": jo.Channel(participants=2),
    "phase only": jo.Channel(fading=jo.rayleigh(answer=jo.PhaseOnly(0.886), csi_error=0.01)),
    "optimal power": jo.Channel(fading=jo.rician(2.0, answer=jo.OptimalPower(), correlation=0.5)),
    "forcing": jo.Channel(fading=jo.nakagami(1.5, answer=jo.UniformForcing(), antennas=2)),
    "eigenvector": jo.Channel(
        fading=jo.rayleigh(answer=jo.UniformForcing("eigenvector"), antennas=2)
    ),
    "blind": jo.Channel(fading=jo.rayleigh(answer=jo.Blind(), antennas=3), gains=[0.5, 1, 2, 1]),
    "selective": jo.Channel(
        fading=jo.rayleigh(carriers=3, antennas=2, answer=jo.UniformForcing(threshold=0.5))
    ),
}
ANSWERED = ("selective", "phase only", "optimal power", "forcing", "eigenvector", "blind")
ROUNDS, TRIALS = 3, 2
# Every algorithm over the two channels with most parts, every channel with the two algorithms.
RICH = ("cobaaf", "cobaaf, other parts")
EVERY = tuple(name for name in ALGORITHMS if name not in METHODS)
MATRIX = {name: EVERY if name in ("noisy", "rayleigh") else RICH for name in CHANNELS}
MATRIX |= dict.fromkeys(ANSWERED, ("cobaaf, other parts",))  # both blocks, and no calibration


def _program(channel, task, names):
    """Algorithms over one channel as one program, each with its own calibration."""
    entered = [
        experiment(
            jax.random.key(0), ALGORITHMS[name], channel, task, ROUNDS, TRIALS, calibration_trials=3
        )
        for name in names
    ]
    arguments = [arguments for arguments, _ in entered]
    options = entered[0][1]

    def program(arguments):
        return {name: run(options, **each) for name, each in zip(names, arguments, strict=True)}

    return jax.jit(program), arguments


def _images():
    """A flax CNN on tiny images, users of unequal size."""
    rng = np.random.default_rng(0)
    sizes = [5, 3, 1, 4]
    features = [rng.random((n, 4, 4)) for n in sizes]
    labels = [rng.integers(0, 3, n) for n in sizes]
    return jo.tasks.classification(
        jo.tasks.CNN(3, channels=(2,)), (features, labels), (features[0], labels[0])
    )


@pytest.mark.parametrize("name", CHANNELS)
def test_algorithms_over_channels(name, task):
    """With calibration and run all in one program, data drawn inside; over one channel, given."""
    if name != "noisy":
        task = jo.tasks.synthetic_regression(jax.random.key(0), 4, 5, 2)
    _check(task, CHANNELS[name], MATRIX[name], scores=("loss", "gap"))


def test_algorithms_train_a_flax_cnn():
    names = ("fedavg", "baaf", "cobaaf, option 2", "cobaaf, other parts")
    _check(_images(), CHANNELS["rayleigh"], names, scores=("loss", "accuracy"))


def test_methods_over_fading_and_heavy_tails(task):
    channel = CHANNELS["rayleigh"].replace(noise=jo.Stable(1.5))
    _check(task, channel, tuple(METHODS), scores=("loss", "gap"))


def _check(task, channel, names, scores):
    """Repeatable runs, every field in its shape; and exported, nothing that one platform lacks."""
    program, arguments = _program(channel, task, names)
    histories, again = program(arguments), program(arguments)
    for name, history in histories.items():
        controlled = ALGORITHMS[name].local.controlled
        known = ("error",) if history.error is not None else ()
        assert bool(known) == getattr(ALGORITHMS[name].compress, "averages", True)
        for field in (*scores, "power", *known, "participants"):
            assert getattr(history, field).shape == (TRIALS, ROUNDS), (name, field)
        for field in ("control_power", "control_error"):
            value = getattr(history, field)
            assert value.shape == (TRIALS, ROUNDS) if controlled else value is None, (name, field)
        known = [field for field in ("loss", "gap", "accuracy") if hasattr(history, field)]
        assert set(known) == {"loss", "gap", "accuracy"} & set(scores)
        assert history.user_power is None
        assert history.model.shape == history.average.shape == (TRIALS, task.dim)
        chex.assert_tree_all_finite(history)
        chex.assert_trees_all_equal(history, again[name])
        chex.assert_type(jax.tree.leaves(history), jnp.float32)
        assert (history.participants <= task.users).all()
        assert all((getattr(history, field) >= 0).all() for field in scores)
        data = history.to_xarray()
        assert set(data.loss.dims) == {"trial", "round"}
        assert set(data.data_vars) == {
            field
            for field in vars(history)
            if not isinstance(getattr(history, field), tuple | dict | int | None)
        } | set(scores)
    exported = export.export(program, platforms=("cpu", "cuda", "tpu"))(arguments)
    assert set(exported.platforms) == {"cpu", "cuda", "tpu"}
    assert "callback" not in exported.mlir_module()
