"""Exact expectations agree with simulation, with moments by hand, and with their limits."""

import dataclasses
from pathlib import Path

import jax
import numpy as np
import optax
import pandas
import pytest
import reference

import jaxota as jo
from jaxota.study import expected as exact_study
from jaxota.theory import links, steps

ROUNDS, TRIALS = 8, 6000
LOCAL = {"step_size": 1e-2, "steps": 4, "batch": 3}


@pytest.fixture(scope="module")
def task():
    """Users of unequal size, on data of their own."""
    features, targets = reference.synthetic(np.random.default_rng(5), 4, 12, 3, 0.1, 1.0)
    sizes = 12, 9, 12, 7
    pairs = zip(features, targets, sizes, strict=True)
    cut = [(a[:size], b[:size]) for a, b, size in pairs]
    return jo.tasks.regression([a for a, _ in cut], [b for _, b in cut])


def z_scores(values, expected):
    """Differences of means over trials in standard errors; 0 where nothing varies."""
    values = np.asarray(values, np.float64)
    error = values.std(0, ddof=1) / np.sqrt(len(values))
    close = np.isclose(values.mean(0), expected, rtol=1e-5, atol=1e-7)
    return np.where(close, 0.0, (values.mean(0) - expected) / np.where(error > 0, error, 1e-30))


ALGORITHMS = {
    "fedavg": jo.fedavg(**LOCAL),
    "full gradients": jo.cotaf(1e-2, 4),
    "one step": jo.cotaf(1e-2, 1, 3),
    "proximal": jo.cotaf(**LOCAL).replace(local=jo.Proximal(1e-2, 4, 3, mu=2.0)),
    "scaffold": jo.scaffold(**LOCAL),
    "warm start": jo.cobaaf(**LOCAL, warm_start=True),
    "noisy fedavg": jo.noisy_fedavg(**LOCAL),
    "constant gain": jo.noisy_fedavg(**LOCAL, precode=jo.Constant(0.5)),
    "bounded": jo.cobaaf(**LOCAL, precode=jo.Bounded(60.0)),
    "cotaf": jo.cotaf(**LOCAL),
    "baaf": jo.baaf(**LOCAL),
    "pooled": jo.baaf(**LOCAL, estimate=jo.PooledMMSE()),
    "prior on updates": jo.cobaaf(**LOCAL, estimate=jo.UpdateMMSE()),
    "cobaaf": jo.cobaaf(**LOCAL),
    "momentum": jo.cobaaf(**LOCAL, server=optax.sgd(0.7, momentum=0.3)),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_curves_are_the_means_of_simulations(task, name):
    algorithm, channel = ALGORITHMS[name], jo.Channel(snr_db=5.0, control_power=3.0)
    plan = jo.exact_plan(algorithm, task, ROUNDS)
    expected = jo.exact(algorithm, channel, task, ROUNDS, plan=plan)
    history = jo.simulate(2, algorithm, channel, task, ROUNDS, TRIALS, plan=plan)
    for result in ("gap", "loss", "error", "control_error", "mean_power", "mean_control_power"):
        value = getattr(expected, result)
        assert (value is None) == (result not in history._results())
        if value is not None:
            assert np.abs(z_scores(history[result], value)).max() < 4, result
    assert np.abs(z_scores(history.model, expected.mean[-1])).max() < 4
    models = np.asarray(history.model, np.float64)
    deviations = models - models.mean(0)
    products = deviations[:, :, None] * deviations[:, None, :]
    assert np.abs(z_scores(products, expected.covariance[-1])).max() < 4
    np.testing.assert_allclose(history.deviation[0], expected.deviation, rtol=1e-4)


GAINS = (1.0, 0.5, 2.0, 0.3)
SILENT = {
    "participants": ("cotaf", {"participants": 2}),
    "controls of silent users": ("cobaaf", {"participants": 2}),
    "rayleigh": ("pooled", {"fading": jo.rayleigh(0.8)}),
    "rician": ("cobaaf", {"fading": jo.rician(3.0, 0.8, 0.6)}),
    "path loss": ("cotaf", {"fading": jo.nakagami(2.0, 0.9), "gains": GAINS}),
    "channel estimates": ("baaf", {"fading": jo.rayleigh(0.8, csi_error=0.1), "participants": 3}),
    "estimates of Nakagami": ("cobaaf", {"fading": jo.nakagami(2.0, 0.8, 0.6, csi_error=0.1)}),
}


@pytest.mark.parametrize("name", SILENT)
def test_users_who_are_not_heard(task, name):
    label, fields = SILENT[name]
    algorithm, channel = ALGORITHMS[label], jo.Channel(snr_db=5.0, **fields)
    plan = jo.exact_plan(algorithm, task, ROUNDS)
    expected = jo.exact(algorithm, channel, task, ROUNDS, plan=plan)
    history = jo.simulate(3, algorithm, channel, task, ROUNDS, TRIALS, plan=plan)
    for result in ("gap", "error", "control_error", "mean_power", "mean_control_power"):
        value = getattr(expected, result)
        if value is not None:
            assert np.abs(z_scores(history[result], value)).max() < 4, result


@pytest.mark.parametrize(
    ("name", "fields"), [("bounded", {}), ("cobaaf", {"participants": 2}), ("warm start", {})]
)
def test_weights_of_users(task, name, fields):
    weighted = jo.tasks.weighted(task, [3.0, 0.5, 1.0, 0.0])
    algorithm, channel = ALGORITHMS[name], jo.Channel(snr_db=5.0, **fields)
    plan = jo.exact_plan(algorithm, weighted, ROUNDS)
    expected = jo.exact(algorithm, channel, weighted, ROUNDS, plan=plan)
    history = jo.simulate(4, algorithm, channel, weighted, ROUNDS, TRIALS, plan=plan)
    for result in ("gap", "loss", "error", "control_error", "mean_power", "mean_control_power"):
        scores = z_scores(history[result], getattr(expected, result))
        assert np.abs(scores).max() < 4, result
    unweighted = jo.exact(algorithm, channel, task, ROUNDS, plan=plan).gap
    assert np.abs(expected.gap / unweighted - 1.0).min() > 0.05  # weights matter here


def test_sets_and_numbers_of_users_give_the_same(task, monkeypatch):
    """Sets can always be enumerated; their number suffices where users are alike."""
    fading = jo.nakagami(1.5, 0.9)
    for fields in ({"participants": 2}, {"fading": fading}, {"fading": fading, "gains": GAINS}):
        channel = jo.Channel(snr_db=5.0, **fields)
        numbers = jo.exact(ALGORITHMS["cotaf"], channel, task, 2)
        with monkeypatch.context() as patch:
            patch.setattr(links, "alike", lambda *_: False)
            sets = jo.exact(ALGORITHMS["cotaf"], channel, task, 2)
        np.testing.assert_allclose(sets.gap, numbers.gap, rtol=1e-9)
        np.testing.assert_allclose(sets.mean_power, numbers.mean_power, rtol=1e-9)


@jax.jit
def moments(law, amplitudes):
    return law.above(0, jax.numpy.asarray(amplitudes))


@pytest.mark.parametrize("error", [0.0, 0.2])
@pytest.mark.parametrize("law", [jo.rayleigh(0.7), jo.rician(4.0, 0.7), jo.nakagami(0.6, 0.7)])
def test_moments_of_gains_above_the_floor(law, error):
    drawn, amplitude = 200_000, 1.3
    law = jax.tree.map(jax.numpy.float32, law.replace(csi_error=error))
    with jax.enable_x64(True):
        above = jax.device_get(moments(law, [amplitude]))
    start = law.start(jax.random.key(1), drawn)
    keys = jax.random.split(jax.random.key(0))
    drawn_both = law.draw(keys, jax.numpy.full(drawn, amplitude, "float32"), start)[:2]
    gains, estimates = (np.asarray(x[:, 0, 0], np.float64) for x in drawn_both)
    power = np.sum(estimates**2, 0)
    heard = power > 0.7**2
    left = (np.sum(gains * estimates, 0) / power)[heard]  # Re(h/ĥ)
    assert abs(z_scores(heard.astype(float), above.chance)[0]) < 4
    for sampled, moment in (
        (left, above.gain),
        (left**2, above.square),
        (0.7**2 / power[heard], above.power),
    ):
        assert abs(z_scores(sampled, moment)[0]) < 4


def test_rician_and_nakagami_gains_become_rayleigh():
    laws = [jo.rayleigh(0.4, csi_error=0.1), jo.rician(0.0, 0.4, csi_error=0.1)]
    laws.append(jo.nakagami(1.0, 0.4, csi_error=0.1))
    with jax.enable_x64(True):
        laws = jax.tree.map(lambda x: jax.numpy.float64(x), laws)
        rayleigh, *others = (moments(law, [1.3, 0.2]) for law in laws)
    for other in others:
        for moment, wanted in zip(other, rayleigh, strict=True):
            np.testing.assert_allclose(moment, wanted, rtol=1e-9)


def test_samples_and_packed_operators_give_the_same(task, monkeypatch):
    for name in ("cobaaf", "cotaf"):
        packed = jo.exact(ALGORITHMS[name], jo.Channel(), task, 3)
        monkeypatch.setattr(steps, "PACKED", 0)
        jax.clear_caches()
        samples = jo.exact(ALGORITHMS[name], jo.Channel(), task, 3)
        monkeypatch.undo()
        np.testing.assert_allclose(samples.gap, packed.gap, rtol=1e-10)
    jax.clear_caches()


def test_linear_servers_are_known_by_their_steps():
    memory = optax.sgd(0.5, momentum=0.9).init(jax.numpy.zeros(1))
    server = jo.Optimizer(optax.sgd(0.5, momentum=0.9))
    matrix, _ = server.affine(memory)  # of (model, momentum, estimate, 1)
    np.testing.assert_allclose(matrix, [[0.5, -0.45, 0.5, 0], [1, 0.9, -1, 0]], rtol=1e-6)
    for optimizer in (
        optax.adam(0.1),
        optax.chain(optax.clip(1e3), optax.sgd(1.0)),
        optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1.0)),
        optax.sign_sgd(0.1),
    ):
        assert jo.Optimizer(optimizer).affine(optimizer.init(jax.numpy.zeros(1))) is None


@pytest.mark.parametrize("name", ["cotaf", "cobaaf", "warm start"])
def test_plan_is_the_limit_of_calibrations(task, name):
    algorithm = ALGORITHMS[name]
    plan = jo.exact_plan(algorithm, task, ROUNDS)
    runs = [jo.calibrate(key, algorithm, task, ROUNDS, 1000) for key in range(8)]
    for field, value in vars(plan).items():
        if value is not None:
            sampled = np.stack([np.asarray(getattr(run, field), np.float64) for run in runs])
            # Variances and maxima of few runs are biased, by far less than these eight tell.
            assert np.abs(z_scores(sampled, value)).max() < 8, field
            np.testing.assert_allclose(sampled.mean(0), value, rtol=0.05, atol=0.05)


def test_one_user_and_one_step_are_textbook_sgd():
    rng = np.random.default_rng(0)
    features, targets = rng.standard_normal((1, 6, 2)), rng.standard_normal((1, 6))
    task = jo.tasks.regression(features, targets)
    expected = jo.exact(jo.fedavg(0.05, 1, 2), jo.Channel(), task, 5)
    a, b = (np.asarray(x, np.float32).astype(np.float64)[0] for x in (features, targets))
    eta = np.float64(np.float32(0.05))
    mean, second = np.zeros(2), np.eye(2)
    for r in range(5):
        new_mean, new_second = np.zeros(2), np.zeros((2, 2))
        for i in range(6):  # all minibatches of two, each as likely as any other
            for j in range(6):
                chosen = a[[i, j]]
                hessian, slope = chosen.T @ chosen, chosen.T @ b[[i, j]]
                shrink = np.eye(2) - eta * hessian
                new_mean += (shrink @ mean + eta * slope) / 36
                cross = np.outer(shrink @ mean, eta * slope)
                square = shrink @ second @ shrink.T + cross + cross.T
                new_second += (square + eta**2 * np.outer(slope, slope)) / 36
        mean, second = new_mean, new_second
        np.testing.assert_allclose(expected.mean[r], mean, atol=1e-10)
        covariance = second - np.outer(mean, mean)
        np.testing.assert_allclose(expected.covariance[r], covariance, atol=1e-10)


def test_without_noise_the_covariance_is_that_of_the_start(task):
    expected = jo.exact(jo.fedavg(1e-2, 3), jo.Channel(), task, 4)
    problem = task.problem(0)
    step = np.mean(
        [
            np.linalg.matrix_power(np.eye(3) - 1e-2 * np.asarray(h, np.float64), 3)
            for h in problem.hessians
        ],
        0,
    )
    mapped = np.linalg.matrix_power(step, 4)
    np.testing.assert_allclose(expected.covariance[-1], mapped @ mapped.T, rtol=1e-5, atol=1e-9)


def test_arrays_are_swept(task):
    snrs = [-5.0, 5.0, np.inf]
    swept = jo.exact(ALGORITHMS["baaf"], jo.Channel(snr_db=snrs), task, ROUNDS)
    for row, snr in enumerate(snrs):
        one = jo.exact(ALGORITHMS["baaf"], jo.Channel(snr_db=snr), task, ROUNDS)
        np.testing.assert_allclose(swept.gap[row], one.gap, rtol=1e-10)
    data = swept.to_xarray()
    assert dict(data.sizes) == {"setting": 3, "round": 8, "parameter": 3, "other": 3}
    np.testing.assert_array_equal(data.snr_db, snrs)
    ideal = jo.exact(ALGORITHMS["fedavg"], jo.Channel(), task, ROUNDS)
    np.testing.assert_allclose(swept.gap[2], ideal.gap, rtol=1e-9)


def test_data_are_swept_by_their_keys():
    keys = jax.random.split(jax.random.key(3), 2)
    options = {"users": 3, "samples": 6, "dim": 2}
    swept = jo.exact(
        ALGORITHMS["cobaaf"], jo.Channel(), jo.tasks.synthetic_regression(keys, **options), 3
    )
    assert dict(swept.to_xarray().sizes)["setting"] == 2
    for row, key in enumerate(keys):
        task = jo.tasks.synthetic_regression(key, **options)
        one = jo.exact(ALGORITHMS["cobaaf"], jo.Channel(), task, 3)
        np.testing.assert_allclose(swept.gap[row], one.gap, rtol=1e-9)


def test_numbers_are_doubles_and_nothing_global_changes(task):
    expected = jo.exact(ALGORITHMS["cotaf"], jo.Channel(), task, 2)
    assert expected.gap.dtype == np.float64
    assert not jax.config.jax_enable_x64


@jo.part
class Deaf:
    """An answer that does not know the moments of its links."""

    def __call__(self, block, gains, estimates, noise):
        return jo.Inversion()(block, gains, estimates, noise)


@jo.part
class Wrapped:
    """A carrier around a channel, with signals of its own."""

    channel: jo.Channel

    def __getattr__(self, name):
        return getattr(self.channel, name)

    def carry(self, key, sent, energy, noise, link):
        received, deviation, power = jo.Channel.carry(self, key, sent, energy, noise, link)
        return 0.5 * received, deviation, power


@jo.part
class Halved:
    """Users reach the server over `Wrapped`."""

    def __call__(self, channel):
        return Wrapped(channel)


REFUSED = {
    "algorithm.precode": (jo.cotaf(**LOCAL, precode=jo.Online()), jo.Channel()),
    "algorithm.estimate": (jo.cotaf(**LOCAL, estimate=jo.JamesStein()), jo.Channel()),
    "algorithm.local": (jo.cobaaf(**LOCAL, control_option=2), jo.Channel()),
    "algorithm.local must": (jo.wise(**LOCAL), jo.Channel()),
    "algorithm.server": (jo.cotaf(**LOCAL, server=optax.adam(0.1)), jo.Channel()),
    "channel must": (jo.baaf(**LOCAL), jo.Channel(participants=2)),
    "channel.fading": (jo.cotaf(**LOCAL), jo.Channel(fading=jo.rayleigh(correlation=0.1))),
    "channel.fading must": (jo.cotaf(**LOCAL), jo.Channel(fading=jo.rayleigh(answer=Deaf()))),
    "algorithm.medium": (jo.cotaf(**LOCAL).replace(medium=Halved()), jo.Channel()),
    "algorithm.server must take": (jo.cotaf(**LOCAL, server=jo.Strongest(2)), jo.Channel()),
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_is_not_linear_is_refused_in_one_line(task, field, monkeypatch):
    monkeypatch.setattr(links, "SETS", 5)
    with pytest.raises(jo.InputError, match=f"^{field}.*jo.simulate") as error:
        jo.exact(*REFUSED[field], task, 3)
    assert "\n" not in str(error.value)


def test_tasks_without_hessians_are_refused():
    redrawn = jo.tasks.synthetic_regression(0, users=2, samples=4, dim=2, redraw=True)
    with pytest.raises(jo.InputError, match=r"^task must be least squares"):
        jo.exact(ALGORITHMS["cotaf"], jo.Channel(), redrawn, 3)


def test_the_best_plan_is_simulated_as_computed(task):
    channel, start = jo.Channel(snr_db=5.0), ALGORITHMS["cotaf"]
    found = jo.exact_best(start, channel, task, 3, iterations=8)
    history = jo.simulate(1, found.algorithm, channel, task, 3, TRIALS, plan=found.plan)
    assert np.abs(z_scores(history.gap, found.expected.gap)).max() < 4
    powers = np.asarray(history.mean_power).mean()
    assert np.abs(z_scores(history.mean_power, found.expected.mean_power)).max() < 4 and powers < 1
    assert found.expected.gap[-1] < jo.exact(start, channel, task, 3).gap[-1]
    with pytest.raises(jo.InputError, match=r"^algorithm.local must have no controls"):
        jo.exact_best(ALGORITHMS["cobaaf"], channel, task, 3)


def test_exact_curves_of_a_study(task):
    study = jo.Study(
        {"COTAF": ALGORITHMS["cotaf"], "WISE": jo.wise(**LOCAL)},
        jo.Channel(),
        task,
        rounds=3,
        trials=50,
        key=4,
    )
    over = study.replace(over=jo.grid(steps=[1, 4], snr_db=[0.0, 10.0]))
    report = exact_study.report_of_grid(over)
    one = ALGORITHMS["cotaf"].replace(local=ALGORITHMS["cotaf"].local.replace(steps=1))
    found = report.dataset.gap.sel(algorithm="COTAF", steps=1, snr_db=10.0)
    np.testing.assert_allclose(found, jo.exact(one, jo.Channel(), task, 3).gap, rtol=1e-9)
    assert len(report.csv) == 12 and "WISE has no exact curve" in report.remarks[0]
    dataset = study.run()
    added = exact_study.beside_trials(jo.study_report(dataset), study, dataset)
    assert added.table[0][2:4] == ["exact", "z"] and added.table[2][2:4] == ["–", "–"]
    plan = jo.calibrate(4, ALGORITHMS["cotaf"], task, 3)
    gap = jo.exact(ALGORITHMS["cotaf"], jo.Channel(), task, 3, plan=plan).gap
    rows = added.csv[(added.csv.algorithm == "COTAF") & (added.csv.metric == "gap")]
    np.testing.assert_allclose(rows.exact, gap, rtol=1e-6)
    assert np.abs(rows.z).max() < 4
    labels = added.figure().axes[0].get_legend_handles_labels()[1]
    assert "exact" in labels


def test_the_page_shows_the_stored_claims(monkeypatch):
    docs = Path(__file__).parent.parent / "docs"
    monkeypatch.syspath_prepend(str(docs))
    import put_exact_claims

    page = (docs / "exact.md").read_text(encoding="utf-8")
    stored = pandas.read_csv(docs / "results" / "exact_claims.csv")
    assert put_exact_claims.put(stored, page) == page


@pytest.mark.slow
def test_claims_in_expectation(monkeypatch):
    """A small run of the study: its shares are those of the gaps that it stores."""
    folder = Path(__file__).parent.parent / "benchmarks" / "paper"
    monkeypatch.syspath_prepend(str(folder))
    import claims
    import exact_claims

    figures = dict(jo.figures.FIGURES)
    for name in ("fig1", "fig2", "fig3"):
        figures[name] = dataclasses.replace(figures[name], rounds=5)
    monkeypatch.setattr(jo.figures, "FIGURES", figures)
    monkeypatch.setattr(exact_claims, "CHUNK", 2)
    report = exact_claims.exact_claims(draws=3, draws_200=1)
    gaps = report.dataset["fig1 COTAF"] < report.dataset["fig1 noisy FedAvg"]
    rows = report.csv[report.csv.part == "1b"]
    np.testing.assert_array_equal(rows.holds, gaps.sum("draw"))
    assert list(rows.draws) == [3] * 5 and list(rows["round"]) == [1, 2, 3, 4, 5]
    assert [row[0][:4] for row in report.table[1:4]] == ["(1a)", "(1b)", "(2) "]
    assert len(report.figure().axes) == 5
    monkeypatch.setattr(exact_claims, "DRAWS_200", 1)
    lines = report.csv[["part", "round"]].assign(precoder="offline")
    lines = claims.with_expected(lines, claims.chosen("1,2,3,4,5"), 0, 3, lambda *_: None)
    np.testing.assert_allclose(lines.expected, report.csv.share, atol=1e-6)
