"""WISE: the facts that it relies on, and a twin in plain NumPy."""

import functools
import itertools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from agree import assert_within

import jaxota as jo
from jaxota.stages.answers import ideal_link
from jaxota.stages.wise import coded_direction

KEY = jax.random.key(3)


@jo.part
class Ripple:
    """Noise that a twin can compute: the same in every round."""

    gaussian = False

    def draw(self, key, shape):
        return jnp.sin(1.0 + 2.0 * jnp.arange(shape[0]))


def twin(features, targets, step_size, steps, rounds, ratio, theta):
    """The equations, one user and one step after the other; `ratio` is sw2/P. Every output."""
    users, _, d = features.shape
    noise = np.sin(1.0 + 2.0 * np.arange(d))
    output, trend, y, trust = theta.copy(), np.zeros(d), np.zeros(d), 0.0
    slopes, errors = np.zeros((users, d)), np.zeros((users, d))
    growth, stride, share, outputs = np.zeros(users), np.ones(users), 0.5, []
    principal, length = np.zeros(d), 0.0

    def z(a, b):
        lengths = np.linalg.norm(a) * np.linalg.norm(b)
        return np.tanh(0.5 * np.sqrt(d) * (a @ b) / lengths) if lengths > 0 else 0.0

    for r in range(1, rounds + 1):
        sums = np.zeros((users, d))
        for i in range(users):
            correction = trust * (-y / (steps * step_size) - slopes[i])
            v, squares = np.zeros(d), []
            for _ in range(steps):
                residual = features[i] @ (theta + v) - targets[i]
                g = 2 * features[i].T @ residual / len(residual)
                u = g + correction
                v = v - stride[i] * step_size * u
                squares.append(u @ u)
                sums[i] += g
            slopes[i] = sums[i] / steps
            half = steps // 2
            if half:
                grown = np.clip(np.log(sum(squares[-half:]) / sum(squares[:half])), -5, 5)
                growth[i] = grown if r == 1 else (growth[i] + grown) / 2
                stride[i] *= np.exp(0.02 - max(growth[i] - 0.25, 0.0))
                stride[i] = np.clip(stride[i], 1e-4, 1.0)
        s = -step_size * sums
        size = np.linalg.norm(principal)
        v = principal / size if size > 0 else np.full(d, d**-0.5)
        coefficients = s @ v
        x = s - np.outer(coefficients, v) + errors
        sizes, lengths = np.linalg.norm(x, axis=1), np.linalg.norm(s, axis=1)
        costs = {}
        for level in np.linspace(sizes.min(), sizes.max(), 20):
            cut = np.maximum(sizes - level, 0).mean()
            costs[level] = cut**2 + d * ratio * level**2 / users**2
        level = min(costs, key=costs.get)
        sent = x * np.minimum(1.0, level / sizes)[:, None]
        errors = 0.9 * (x - sent)
        nu = ratio * level**2 / users**2
        y = sent.mean(0) + np.sqrt(nu) * noise + coefficients.mean() * v
        principal = principal + (y @ v) * y
        apart = max((lengths**2).mean() - max(y @ y - d * nu, 0.0), 0.0)
        trust = apart / (apart + d * nu) if apart + d * nu > 0 else 0.0
        if r == 1:
            gain = np.sqrt(lengths.mean() ** 2 / (lengths.mean() ** 2 + d * nu))
        gain *= np.exp(max(0.2, 1 / r) * (z(y, trend) + 0.1))
        if r > 1:
            gain = min(gain, 1.5 * length / np.linalg.norm(y))
        step = gain * np.linalg.norm(y)
        length = step if r == 1 else 0.8 * length + 0.2 * step
        trend = 0.8 * trend + 0.2 * y
        share = np.clip(share * np.exp(0.2 * (z(y, theta - output) - 0.5)), 3 / (r + 2), 1.0)
        theta = theta + gain * y
        output = output + share * (theta - output)
        outputs.append(output)
    return np.array(outputs)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("snr_db", [-5.0, 10.0, np.inf])
def test_outputs_equal_those_of_a_numpy_twin(arrays, steps, snr_db):
    """Round by round, with full gradients and the same noise; steps so long that paths expand."""
    features, targets = arrays
    task = jo.tasks.regression(features, targets)
    channel = jo.Channel(snr_db, noise=Ripple())
    initial = np.linspace(-1.0, 1.0, task.dim)[None]
    run = functools.partial(jo.simulate, KEY, jo.wise(0.05, steps), channel, task, trials=1)
    ratio = 10 ** (-snr_db / 10)
    outputs = twin(features, targets, 0.05, steps, 12, ratio, initial[0])
    for rounds in (1, 2, 12):
        model = run(rounds=rounds, initial=initial).model[0]
        scale = np.abs(outputs[rounds - 1]).max()
        np.testing.assert_allclose(model, outputs[rounds - 1], rtol=0, atol=2e-4 * scale)


@pytest.fixture(scope="module")
def task():
    return jo.tasks.synthetic_regression(KEY, users=10, samples=20, dim=6)


NOT_ADAPTIVE = {"trusting": False, "striding": False}


@pytest.mark.slow
def test_without_its_adaptations_wise_is_fedavg(task):
    """Over the ideal channel with λ = 0 and a_i = γ = δ = 1 fixed."""
    run = functools.partial(jo.simulate, KEY, task=task, rounds=8, trials=2)
    fixed = jo.wise(1e-2, 4, 4).replace(
        local=jo.PathCorrectedSGD(1e-2, 4, 4, **NOT_ADAPTIVE),
        server=jo.Innovations(jo.Fixed(1.0), jo.Last()),
    )
    plain = run(jo.fedavg(1e-2, 4, 4), jo.Channel())
    scale = float(np.abs(plain.model).max())
    np.testing.assert_allclose(
        run(fixed, jo.Channel(np.inf)).model, plain.model, rtol=0, atol=1e-5 * scale
    )
    # The output is apart from the broadcast model: without the average it is FedAvg's no more.
    averaged = run(fixed.replace(server=jo.Innovations(jo.Fixed(1.0))), jo.Channel(np.inf))
    assert np.abs(averaged.model - plain.model).max() > 1e-4 * scale


@pytest.mark.slow
def test_power_is_never_above_the_budget(task):
    """Of any user in any round; also over fading, with some users and a wrong guess at them."""
    for channel in (
        jo.Channel(jnp.array([-20.0, 0.0, 20.0, 60.0])),
        jo.Channel(jnp.array([0.0, 20.0]), fading=jo.rayleigh(0.3, csi_error=0.05), participants=6),
    ):
        history = jo.sweep(
            KEY, jo.wise(1e-2, 4, 4), channel, task, rounds=30, trials=10, user_power=True
        )
        power = np.asarray(history.user_power)
        assert power.max() <= 1 + 1e-5 and power.max() > 0.5
        assert np.isfinite(history.gap).all()


@pytest.mark.slow
@pytest.mark.parametrize("channel", [jo.Channel(participants=3), jo.Channel(fading=jo.rayleigh())])
def test_only_users_who_were_heard_enter_the_average(task, channel):
    """Coded coefficients, too; without noise nothing is cut off, and what is received is exact."""
    ideal = channel.replace(snr_db=np.inf)
    history = jo.simulate(KEY, jo.wise(1e-2, 4, 4), ideal, task, rounds=10, trials=5)
    heard = np.asarray(history.participants)
    assert (heard < 10).any() and np.isfinite(history.gap).all()
    moved = np.square(history.model).sum(-1).max()
    assert np.asarray(history.error).max() < 1e-9 * moved
    np.testing.assert_allclose(np.asarray(history.deviation), 0.0)


@pytest.mark.slow
def test_wise_beats_cotaf_at_low_snr(task):
    run = functools.partial(jo.simulate, KEY, task=task, rounds=40, trials=50)
    channel = jo.Channel(snr_db=-5.0)
    plain = run(jo.cotaf(1e-2, 4, 4, precode=jo.Online()), channel)
    difference = (
        np.asarray(plain.gap)[:, -1] - np.asarray(run(jo.wise(1e-2, 4, 4), channel).gap)[:, -1]
    )
    assert difference.mean() > 4 * difference.std(ddof=1) / np.sqrt(len(difference))


def test_an_error_in_the_correction_changes_gradients_by_the_stated_factor(arrays):
    """On a quadratic with Hessian A: Σg changes by −K·ε·[1 − (1 − (1 − aηA)^K)/(K·aηA)]."""
    features, targets = arrays
    problem = jo.tasks.regression(features, targets).problem(0)
    steps, step_size, stride, user = 6, 0.02, 0.7, 1
    rule = jo.PathCorrectedSGD(step_size, steps, coded=False)
    model, correction = jnp.linspace(-1.0, 1.0, 6), jnp.linspace(2.0, -1.0, 6)
    error = jnp.array([0.5, -1.0, 2.0, 0.0, 1.0, -0.3])
    users = len(features)
    memory = rule.start(KEY, problem, model)[1] | {"stride": jnp.full(users, stride)}

    def gradients(correction):
        """Σg of the user whose path is corrected by λ(ĥ − h_i), with λ = 1 and ĥ = 0."""
        local = memory | {"gradient": jnp.tile(-correction, (users, 1))}
        zeros = jnp.zeros_like(model)
        server = {"y": zeros, "trust": jnp.float32(1.0), "principal": zeros}
        state = types.SimpleNamespace(model=model, server=server, local=local)
        return -rule(KEY, KEY, problem, state).update[user] / step_size

    changed = gradients(correction + error) - gradients(correction)
    hessian = 2 * features[user].T @ features[user] / len(features[user])
    values, basis = np.linalg.eigh(hessian)
    pace = stride * step_size * values
    factor = 1 - (1 - (1 - pace) ** steps) / (steps * pace)
    stated = -steps * basis @ (factor * (basis.T @ np.asarray(error)))
    np.testing.assert_allclose(changed, stated, rtol=0, atol=1e-4 * np.abs(stated).max())
    assert np.abs(stated).max() < steps * np.abs(error).max() / 2  # it does not add up


@jo.part
class Kalman:
    """aP/(a²P + ν), times `factor`; P of the error as it then is."""

    a: float = jo.traced(above=0.0)
    start_at: float = jo.traced(above=0.0)
    factor: float = jo.traced(above=0.0)

    def start(self, model):
        return self.start_at + 0.0

    def __call__(self, y, size, noise, memory):
        gain = self.factor * self.a * memory / (self.a**2 * memory + noise)
        return gain, (1 - self.a * gain) ** 2 * memory + gain**2 * noise


def _scalar(factor, trials=4000, rounds=6):
    """Innovations [trial, round] of a scalar model, their gains, P_r and ν: y = −a·e + n."""
    hessian, step_size, start_at = 2.0, 0.2, 3.0
    a = step_size * hessian
    task = jo.tasks.empirical(
        lambda key: {"w": jnp.zeros(())},
        lambda w, batch: hessian / 2 * w["w"] ** 2 + 0.0 * batch,
        jnp.zeros((4, 2)),
        lambda w, test: {"theta": w["w"]},
        jnp.zeros(1),
    )
    server = jo.Innovations(Kalman(a, start_at, factor), jo.Last())
    algorithm = jo.cotaf(step_size, 1, server=server, precode=jo.Constant(1.0)).replace(
        local=jo.PathCorrectedSGD(step_size, 1, **NOT_ADAPTIVE, coded=False)
    )
    first = np.sqrt(start_at) * np.random.default_rng(0).standard_normal((trials, 1))
    channel = jo.Channel(snr_db=-5.0)
    history = jo.simulate(KEY, algorithm, channel, task, rounds, trials, initial=first)
    theta = np.concatenate([first, np.asarray(history.scores["theta"], np.float64)], 1)
    nu = float(np.asarray(history.deviation)[0, 0]) ** 2
    gains, variances = [], [start_at]
    for _ in range(rounds):
        p = variances[-1]
        gains.append(factor * a * p / (a**2 * p + nu))
        variances.append((1 - a * gains[-1]) ** 2 * p + gains[-1] ** 2 * nu)
    return np.diff(theta, axis=1) / np.array(gains), a, np.array(gains), np.array(variances), nu


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, 0.4, 1.6])
def test_innovations_are_white_at_kalmans_gain_and_at_no_other(factor):
    y, a, gains, variances, nu = _scalar(factor)
    p = variances[:-1]
    products = y[:, :-1] * y[:, 1:]
    stated = -a * (gains * (a**2 * p + nu) - a * p)[:-1]
    error = products.std(0, ddof=1) / np.sqrt(len(y))
    assert_within(products, stated)
    if factor == 1.0:
        np.testing.assert_allclose(variances[1:], (1 - a * gains) * p, rtol=1e-12)
        np.testing.assert_allclose(stated, 0.0, atol=1e-12)
    else:
        assert (np.abs(stated) > 8 * error)[:2].all()  # the test could tell


def test_the_clipped_remainder_is_sent_later():
    """With leak 1, sent vectors and remainder add up to all vectors that users meant to send."""
    rng, users, dim = np.random.default_rng(1), 5, 4
    clipped, memory, sent, meant = jo.Clipped(leak=1.0), jnp.zeros((users, dim)), 0.0, 0.0
    heard = jnp.ones(users)
    for _ in range(6):
        values = jnp.float32(rng.standard_normal((users, dim)))
        side = jo.SideInfo(
            reports=clipped.report(values, memory), answer={"level": jnp.float32(1.0)}
        )
        each, after = clipped.encode(values, memory, side)
        assert (jnp.linalg.norm(each, axis=1) <= 1 + 1e-6).all()
        memory = clipped.remember(memory, after, heard)
        sent, meant = sent + each, meant + values
    assert float(jnp.abs(memory).max()) > 0.5
    np.testing.assert_allclose(sent + memory, meant, atol=1e-5)
    # Users who were not heard keep their old remainder.
    silent = clipped.remember(memory, after + 1.0, heard.at[2].set(0.0))
    np.testing.assert_array_equal(silent[2], memory[2])
    np.testing.assert_array_equal(silent[0], after[0] + 1.0)


def test_means_are_coded(task):
    centred, values = jo.Centred(), jnp.float32(np.random.default_rng(1).standard_normal((3, 4)))
    reports = centred.report(values, None)
    np.testing.assert_allclose(reports["mean"], values.mean(1), rtol=1e-6)
    side = jo.SideInfo(reports=reports)
    sent, _ = centred.encode(values, None, side)
    np.testing.assert_allclose(sent.sum(1), 0.0, atol=1e-6)
    decoded, _ = centred.decode(
        sent.mean(0), jnp.float32(0.0), ideal_link(3), side, values.shape[1]
    )
    np.testing.assert_allclose(decoded, values.mean(0), rtol=1e-5, atol=1e-6)


def test_three_scalars_are_reported_and_nothing_is_sent_along_the_coded_direction(task):
    """Whatever the direction; in all, what is sent and what is reported is the whole update."""
    problem, wise = task.problem(0), jo.wise(1e-2, 2, 4)
    start = jnp.linspace(-1.0, 1.0, 6)
    server = wise.server.start(start)
    local = wise.local.start(KEY, problem, start)[1]
    whole = wise.local.replace(coded=False)
    for principal in (jnp.zeros(6), jnp.float32([3.0, 0.0, -4.0, 0.0, 1.0, 2.0])):
        state = types.SimpleNamespace(
            model=start, local=local, server=server | {"principal": principal}
        )
        update, plain = (rule(KEY, KEY, problem, state) for rule in (wise.local, whole))
        v = principal / jnp.linalg.norm(principal) if principal.any() else jnp.full(6, 6**-0.5)
        scale = float(jnp.abs(plain.update).max())
        np.testing.assert_allclose(update.update @ v, 0.0, atol=1e-5 * scale)
        added = update.update + jnp.outer(update.reports["coefficient"], v)
        np.testing.assert_allclose(added, plain.update, atol=1e-6 * scale)
    memory = wise.compress.start(*update.update.shape)
    reports = update.reports | wise.compress.report(update.update, memory)
    assert reports.keys() == {"coefficient", "size", "norm"}


def test_the_servers_direction_is_the_principal_one():
    """Of innovations with one dominant direction, whatever it is: the first eigenvector."""
    rng, d = np.random.default_rng(5), 8
    steep = rng.standard_normal(d)
    steep /= np.linalg.norm(steep)
    innovations = 5 * np.outer(rng.standard_normal(40), steep) + rng.standard_normal((40, d))
    server, link = jo.Innovations(), ideal_link(2)
    model, memory = jnp.zeros(d), server.start(jnp.zeros(d))
    for y in np.float32(innovations):
        side = jo.SideInfo(reports={"norm": jnp.ones(2)})
        seen = jo.Aggregate(model + y, jnp.float32(0.1), link, side)
        model, memory = server(seen, types.SimpleNamespace(model=model, server=memory))
    first = np.linalg.eigh(innovations.T @ innovations)[1][:, -1]
    found = coded_direction(memory["principal"])
    assert abs(found @ first) > 0.98 and abs(first @ np.ones(d)) < 0.9 * np.sqrt(d)
    np.testing.assert_allclose(np.linalg.norm(found), 1.0, rtol=1e-5)


@jo.part
class Whole:
    """An average whose share is 1: the output is the model."""

    start = jo.Last.start

    def __call__(self, y, lead, memory):
        return jnp.float32(1.0), memory


def test_a_share_of_one_returns_the_model_to_the_bit():
    """Otherwise the next test of the average would read rounding noise."""
    server, link = jo.Innovations(average=Whole()), ideal_link(2)
    models = np.float32(np.random.default_rng(2).standard_normal((50, 6)) * 10.0)
    side = jo.SideInfo(reports={"norm": jnp.ones(2)})
    for old, estimate in itertools.pairwise(models):
        memory = server.start(jnp.asarray(old)) | {"output": jnp.asarray(models[0])}
        seen = jo.Aggregate(jnp.asarray(estimate), jnp.float32(0.1), link, side)
        model, after = server(seen, types.SimpleNamespace(model=old, server=memory))
        np.testing.assert_array_equal(server.output(model, after), model)


def test_steps_are_bounded_by_the_running_mean_of_steps():
    """An innovation a thousand times as long moves the model 1.5 times as far as the mean step."""
    rule, y = jo.Whitening(), jnp.float32([1.0, 2.0, -1.0])
    memory, steps = rule.start(y), []
    for factor in (1.0, 0.9, 0.8, -1000.0, 0.5):
        gain, memory = rule(factor * y, jnp.float32(3.0), jnp.float32(0.1), memory)
        steps.append(float(gain * jnp.linalg.norm(factor * y)))
    mean = 0.8 * (0.8 * steps[0] + 0.2 * steps[1]) + 0.2 * steps[2]
    assert steps[3] == pytest.approx(1.5 * mean, rel=1e-5) and steps[4] < steps[3]


@pytest.mark.slow
def test_no_burst_with_full_gradients_and_without_noise():
    """Innovations agree for long there, so that the gain grows beyond the steepest curvature."""
    task = jo.tasks.synthetic_regression(KEY, users=5, samples=100, dim=10, rotate=True)
    channel = jo.Channel(np.inf)
    gap = np.asarray(jo.simulate(KEY, jo.wise(1e-2, 1), channel, task, 120, 32).gap)
    assert gap[:, 60:].max() < 1e-2 * gap[:, 0].min()
    plain = np.asarray(jo.simulate(KEY, jo.fedavg(1e-2, 1), channel, task, 120, 32).gap)
    assert (gap[:, -1] < plain[:, -1]).all()


@pytest.mark.slow
def test_finite_however_low_the_snr(task):
    channel = jo.Channel(jnp.array([-250.0, -200.0, -100.0, -30.0]))
    history = jo.sweep(KEY, jo.wise(1e-2, 4, 4), channel, task, rounds=30, trials=10)
    assert np.isfinite(history.gap).all()


def test_a_model_of_one_parameter_is_refused():
    """All of its update would be a coded scalar, and nothing would be sent."""
    task = jo.tasks.synthetic_regression(KEY, users=3, samples=5, dim=1)
    with pytest.raises(jo.InputError, match=r"algorithm\.local\.coded must be False"):
        jo.simulate(KEY, jo.wise(1e-2, 2), jo.Channel(), task, rounds=1, trials=1)


@pytest.mark.slow
def test_wise_converges_to_the_optimum_where_fedavg_does_not():
    """Heterogeneous quadratics, full gradients, no noise."""
    task = jo.tasks.synthetic_regression(KEY, 8, 40, 3, data_spread=1.0, model_spread=3.0)
    run = functools.partial(jo.simulate, KEY, channel=jo.Channel(np.inf), task=task, trials=1)
    gaps = {
        name: np.asarray(run(algorithm, rounds=600).gap)[0, -1]
        for name, algorithm in {"FedAvg": jo.fedavg(1e-2, 10), "WISE": jo.wise(1e-2, 10)}.items()
    }
    assert gaps["WISE"] < 1e-3 * gaps["FedAvg"] and gaps["FedAvg"] > 1e-3


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"server": jo.ReplaceModel()}, "algorithm.server must "),
        ({"local": jo.SGD(1e-2, 2)}, "algorithm.local must report norms to jo.Innovations"),
        ({"compress": jo.Uncompressed()}, "algorithm.server must answer a level to jo.Clipped and"),
    ],
)
def test_parts_name_the_parts_that_they_need(changed, words, task):
    algorithm = jo.wise(1e-2, 2).replace(**changed)
    with pytest.raises(jo.InputError) as caught:
        jo.simulate(KEY, algorithm, jo.Channel(), task, rounds=1, trials=1)
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm",
    [
        jo.cotaf(1e-2, 4, 4, precode=jo.Online(), compress=jo.Centred()),
        jo.cotaf(1e-2, 4, 4, precode=jo.Online(), server=jo.Innovations()).replace(
            local=jo.PathCorrectedSGD(1e-2, 4, 4, gradients=False)
        ),
        jo.wise(1e-2, 4, 4).replace(server=jo.Innovations(jo.Fixed(0.5), jo.Last())),
        jo.wise(1e-2, 4, 4).replace(compress=jo.Centred(jo.Clipped())),
    ],
)
def test_parts_of_wise_work_in_other_algorithms(algorithm, task):
    history = jo.simulate(KEY, algorithm, jo.Channel(20.0), task, rounds=30, trials=4)
    first, last = np.asarray(history.gap)[:, [0, -1]].mean(0)
    assert last < first / 2
