"""A researcher's own parts, from public names alone: a few lines each, tested for correctness.

Every part also runs in `sweep` and is lowered for cpu, cuda and tpu; see the end.
"""

import functools
import inspect

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from agree import assert_within
from jax import export
from scipy import stats

import jaxota as jo

KEY = jax.random.key(0)
OWN = []  # every part of this file


def own(cls):
    OWN.append(cls)
    return jo.part(cls)


def _linear(slopes):
    """A task whose gradients are `slopes` [user, d] wherever the model is: Δ_i = −Kη·slope_i.

    Its scores are the coordinates of the model.
    """
    start = functools.partial(_zeros, slopes.shape[1])
    return jo.tasks.empirical(start, _inner, slopes[:, None], _coordinates)


def _zeros(dim, key):
    return jnp.zeros(dim)


def _inner(model, batch):
    return (batch * model[None]).sum(-1)


def _coordinates(model):
    return {f"x{n}": x for n, x in enumerate(model)}


def _steps(history):
    """What each round added to the model [trial, round, d]."""
    path = [v for k, v in history.scores.items() if k != "loss"]
    return np.diff(np.stack(path, -1), axis=1, prepend=0.0)


def _quadratics():
    """Two users whose Hessians and optima differ: f_i = ‖A_i θ − B_i‖²/D_i."""
    rng = np.random.default_rng(0)
    features = rng.standard_normal((2, 8, 3)) * np.array([1.0, 2.0])[:, None, None]
    targets = np.einsum("nsd,nd->ns", features, rng.standard_normal((2, 3)) * 3)
    return jo.tasks.regression(features, targets)


# FedDyn (Acar et al. 2021)


@own
class Dynamic:
    """f_i(θ) − ⟨m_i, θ⟩ + (a/2)‖θ − θ̂‖², and m_i ← m_i − a(θ_i − θ̂)."""

    step_size: float = jo.traced(above=0.0)
    penalty: float = jo.traced(above=0.0)
    steps: int = jo.static(at_least=1)

    controlled, draws = False, 1
    reach, remember = jo.SGD.reach, jo.if_heard

    def start(self, key, problem, model):
        return None, jnp.zeros((problem.users, problem.dim))

    def __call__(self, k_batch, k_control, problem, state):
        def user(i, memory):
            def step(v, k):
                g = jo.minibatch_gradient(problem, state.model + v, i, None, k_batch, k)
                return v - self.step_size * (g - memory + self.penalty * v), None

            return jax.lax.scan(step, jnp.zeros_like(state.model), jnp.arange(self.steps))[0]

        moved = jax.vmap(user)(jnp.arange(problem.users), state.local)
        return jo.LocalUpdate(moved, memory=state.local - self.penalty * moved)


@own
class DynamicServer:
    """h ← h − (a/N)·Σ_heard(θ_i − θ̂), θ̂ ← mean_heard θ_i − h/a."""

    penalty: float = jo.traced(above=0.0)

    answer, output = jo.ReplaceModel.answer, jo.ReplaceModel.output

    def start(self, model):
        return jnp.zeros_like(model)

    def __call__(self, aggregate, state):
        share = aggregate.link.heard.mean()
        memory = state.server - self.penalty * share * (aggregate.estimate - state.model)
        return aggregate.estimate - memory / self.penalty, memory


def _feddyn(penalty=2.0):
    local = Dynamic(0.02, penalty, 200)
    reference = jo.cotaf(0.02, 200, precode=jo.Online())
    return reference.replace(local=local, server=DynamicServer(penalty))


@pytest.mark.slow
def test_feddyn_settles_at_the_optimum_whatever_the_heterogeneity():
    """Local problems solved, no noise: F's optimum; FedAvg of as many steps stays away from it."""
    task, quiet = _quadratics(), jo.Channel(snr_db=np.inf)
    run = functools.partial(jo.simulate, KEY, channel=quiet, task=task, rounds=150, trials=2)
    dynamic, plain = run(_feddyn()), run(jo.cotaf(0.02, 200, precode=jo.Online()))
    best = np.asarray(task.problem(0).optimum)
    np.testing.assert_allclose(dynamic.model, np.stack([best] * 2), atol=1e-3)
    assert (np.asarray(plain.gap)[:, -1] > 100 * np.asarray(dynamic.gap)[:, -1]).all()


# An estimator with memory


@own
class Kalman:
    """A scalar Kalman filter for each coordinate of an average that wanders by `drift` a round."""

    drift: float = jo.traced(at_least=0.0)
    first: float = jo.traced(at_least=0.0)  # variance before round 1, of mean 0

    needs = ()

    def start(self, dim):
        return jnp.zeros(dim), jnp.full(dim, self.first)

    def __call__(self, received, deviation, block, link, memory):
        mean, variance = memory[0], memory[1] + self.drift
        gain = variance / (variance + deviation**2)
        mean = mean + gain * (received - mean)
        return block.origin + mean, (mean, (1 - gain) * variance)


@pytest.mark.slow
def test_a_kalman_filter_matches_numpy():
    """Against NumPy on what the identity receives: gradients know no model, noise is shared."""
    slopes, drift, first = np.random.default_rng(1).standard_normal((3, 4)), 0.01, 0.5
    identity, kalman = (
        jo.simulate(
            KEY,
            jo.cotaf(0.1, 2, precode=jo.Constant(1.5), estimate=estimate),
            jo.Channel(snr_db=0.0),
            _linear(slopes),
            rounds=12,
            trials=3,
        )
        for estimate in (jo.Identity(), Kalman(drift, first))
    )
    mean, variance = np.zeros((3, 4)), first
    for received, filtered, noise in zip(
        np.moveaxis(_steps(identity), 1, 0),
        np.moveaxis(_steps(kalman), 1, 0),
        np.asarray(identity.deviation)[0] ** 2,
        strict=True,
    ):
        variance = variance + drift
        gain = variance / (variance + noise)
        mean, variance = mean + gain * (received - mean), (1 - gain) * variance
        np.testing.assert_allclose(filtered, mean, atol=1e-5)
    assert np.abs(_steps(identity) - _steps(kalman)).max() > 0.1


# Compression


@own
class TopK:
    """The k largest coordinates of the update and of what was left out before; the rest is kept."""

    k: int = jo.static(at_least=1)

    white = True
    report, decode = jo.Uncompressed.report, jo.Uncompressed.decode

    def start(self, users, dim):
        return jnp.zeros((users, dim))

    def encode(self, values, memory, side):
        total = values + memory
        least = jax.lax.top_k(jnp.abs(total), self.k)[0][:, -1:]
        sent = jnp.where(jnp.abs(total) >= least, total, 0.0)
        return sent, (sent, total)

    def remember(self, before, after, heard):
        sent, total = after
        return total - heard[:, None] * sent


def test_top_k_loses_nothing_over_time():
    """Σ sent + memory = Σ updates, to rounding, whoever is heard in between."""
    rng = np.random.default_rng(2)
    part, users, dim = TopK(2), 3, 7
    memory, sent, updates = part.start(users, dim), np.zeros((users, dim)), np.zeros((users, dim))
    for _ in range(20):
        values = jnp.float32(rng.standard_normal((users, dim)))
        heard = jnp.float32(rng.integers(0, 2, users))
        encoded, after = part.encode(values, memory, jo.SideInfo())
        assert (np.asarray(encoded != 0).sum(1) == 2).all()
        memory = part.remember(memory, after, heard)
        sent, updates = sent + heard[:, None] * encoded, updates + values
    np.testing.assert_allclose(sent + memory, updates, atol=1e-5)


@pytest.mark.slow
def test_top_k_in_a_run():
    """One user, at times not heard, against a loop in NumPy; and k = d is no compression."""
    slope, rounds = np.array([[2.9, -1.13, 0.57, 1.97]]), 15
    channel = jo.Channel(snr_db=np.inf, fading=jo.rayleigh(threshold=0.8))
    run = functools.partial(jo.simulate, KEY, task=_linear(slope), rounds=rounds, trials=3)
    history = run(jo.cotaf(0.1, 1, precode=jo.Online(), compress=TopK(1)), channel)
    memory = np.zeros((3, 4))
    for r in range(rounds):
        total = memory - 0.1 * slope
        first = np.abs(total) == np.abs(total).max(1, keepdims=True)
        heard = np.asarray(history.participants)[:, r : r + 1]
        memory = total - heard * first * total
        np.testing.assert_allclose(_steps(history)[:, r], heard * first * total, atol=1e-5)
    assert 0 < np.mean(history.participants) < 1
    whole, plain = (
        run(jo.cotaf(0.1, 1, precode=jo.Online(), **more), jo.Channel(snr_db=5.0))
        for more in ({"compress": TopK(4)}, {})
    )
    np.testing.assert_array_equal(whole.model, plain.model)


@own
class OneBit:
    """Users send the signs of their coordinates, the server takes the sign of the sum (OBDA)."""

    step: float = jo.traced(above=0.0)

    white = averages = False

    def encode(self, values, memory, side):
        return jnp.sign(values), memory

    def decode(self, received, deviation, link, side, dim):
        return self.step * jnp.sign(received), deviation


@pytest.mark.slow
def test_one_bit_aggregation_is_a_majority_vote():
    """Without noise the majority; with it wrong as often as Q(|s|·√ρ) says, ρ = P/(d·sw2)."""
    slopes = np.where(np.arange(5)[:, None] < np.array([5, 4, 3, 1]), 1.0, -1.0)  # [user, d]
    votes = slopes.sum(0)  # 5, 3, 1, −3
    algorithm = jo.cotaf(0.1, 1, precode=jo.Online(), compress=OneBit(0.3))
    run = functools.partial(jo.simulate, KEY, algorithm, task=_linear(slopes), rounds=10)
    quiet = _steps(run(jo.Channel(snr_db=np.inf), trials=2))
    np.testing.assert_allclose(
        quiet, np.broadcast_to(-0.3 * np.sign(votes), quiet.shape), rtol=1e-4
    )
    loud = run(jo.Channel(snr_db=-1.0), trials=400)
    assert loud.error is None and "error" not in loud.to_xarray()
    wrong = np.sign(_steps(loud)) != -np.sign(votes)  # [trial, round, d]
    ratio = 10**-0.1 / 4
    assert_within(wrong.mean(1), stats.norm.sf(np.abs(votes) * np.sqrt(ratio)))
    np.testing.assert_allclose(loud.power, 1.0, rtol=1e-5)
    with pytest.raises(jo.InputError, match="with OneBit, which leaves no white noise"):
        jo.simulate(KEY, algorithm.replace(estimate=jo.MMSE()), jo.Channel(), _quadratics(), 1, 1)


# Answers to fading


@own
class PhaseOnly:
    """Users turn their phase and send at full power: the server sees |h| (GBMA)."""

    def __call__(self, block, gains, estimates, noise):
        phase = estimates / jnp.linalg.norm(estimates, axis=0, keepdims=True)
        gain = jnp.sum(gains * phase, (0, 1))
        ones = jnp.ones_like(gain)
        return jo.Link(heard=ones, gain=gain, amplification=ones, floor=jnp.float32(1.0))


@pytest.mark.slow
def test_phase_only_transmission():
    """Rayleigh: E gain = √π/2, Var gain = 1 − π/4; all are heard, at full power, noise as it is."""
    task, fading = _linear(np.array([[1.0]])), jo.rayleigh(answer=PhaseOnly())
    algorithm = jo.cotaf(0.5, 1, precode=jo.Online())
    run = functools.partial(jo.simulate, KEY, algorithm, task=task, rounds=20, trials=300)
    history = run(jo.Channel(snr_db=np.inf, fading=fading))
    gain = (_steps(history) / -0.5).reshape(-1)
    assert_within(gain, np.sqrt(np.pi) / 2)
    assert_within((gain - np.sqrt(np.pi) / 2) ** 2, 1 - np.pi / 4)
    assert (history.participants == 1).all() and np.allclose(history.power, 1.0)
    loud = run(jo.Channel(snr_db=3.0, fading=fading))
    np.testing.assert_allclose(loud.deviation, np.sqrt(10**-0.3 * 0.25), rtol=1e-5)


@own
class UniformForcing:
    """Antennas combined by f = Σ_i h_i/‖·‖; users invert fᴴh_i to the weakest; nobody is silent."""

    def __call__(self, block, gains, estimates, noise):
        f = estimates.sum(-1)  # [2, antenna]
        f = f / jnp.linalg.norm(f)
        h = jnp.stack(
            [_inner_product(f, x) for x in (gains, estimates)]
        )  # [gain or known, 2, user]
        power = jnp.sum(h[1] ** 2, 0)
        ones, floor = jnp.ones_like(power), jnp.sqrt(power.min())
        return jo.Link(ones, jnp.sum(h[0] * h[1], 0) / power, floor**2 / power, floor)


def _inner_product(f, h):
    """fᴴh over antennas, in pairs of real numbers: [2, antenna], [2, antenna, user] → [2, user]."""
    real = jnp.einsum("ca,cau->u", f, h)
    return jnp.stack([real, jnp.einsum("a,au->u", f[0], h[1]) - jnp.einsum("a,au->u", f[1], h[0])])


@pytest.mark.slow
def test_two_antennas():
    """Everyone is heard at gain 1 within the budget; the noise is sw2·E/(P·N²·min_i |fᴴh_i|²)."""
    slopes = np.random.default_rng(3).standard_normal((3, 2))
    algorithm = jo.cotaf(0.1, 1, precode=jo.Online())
    run = functools.partial(jo.simulate, KEY, algorithm, task=_linear(slopes), trials=300, rounds=5)
    mean = {}
    for antennas in (1, 2):
        fading = jo.rayleigh(answer=UniformForcing(), antennas=antennas)
        quiet = run(jo.Channel(snr_db=np.inf, fading=fading))
        expected = -0.1 * slopes.mean(0)
        np.testing.assert_allclose(_steps(quiet), np.broadcast_to(expected, (300, 5, 2)), atol=1e-5)
        loud = run(jo.Channel(snr_db=0.0, fading=fading), user_power=True)
        assert (loud.participants == 3).all() and (loud.user_power <= 1 + 1e-5).all()
        energy = 0.01 * (slopes**2).sum(1).max()
        floor = np.sqrt(energy) / (3 * np.asarray(loud.deviation))  # min_i |fᴴh_i|
        assert_within(loud.error.reshape(-1), (2 * np.asarray(loud.deviation) ** 2).reshape(-1))
        mean[antennas] = floor**2
    # One antenna: f is a phase, and min_i |h_i|² of three users is exponential of mean 1/3.
    assert_within(mean[1].reshape(-1), 1 / 3)
    gain = (mean[2] - mean[1]).reshape(-1)
    assert gain.mean() > 4 * gain.std(ddof=1) / np.sqrt(gain.size)


# Another superposition


@own
class Sample:
    """A carrier whose server hears one user alone, drawn at random, with noise of its own law."""

    channel: object

    def __getattr__(self, name):  # power, noise, links, …
        return getattr(self.channel, name)

    def carry(self, key, sent, energy, noise, link):
        one = jax.random.randint(key, (), 0, link.heard.size)
        deviation = jnp.sqrt(noise * energy)
        drawn = self.noise.draw(jax.random.fold_in(key, 1), sent.values[0].shape)
        return sent.values[one] + deviation * drawn, deviation, sent.energies / energy


@own
class Sampled:
    def __call__(self, channel):
        return Sample(channel)


@pytest.mark.slow
def test_another_superposition():
    """Without noise each step is one user's, all of them in turn; with it, its law's deviation."""
    slopes = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    algorithm = jo.cotaf(0.5, 1, precode=jo.Constant(2.0)).replace(medium=Sampled())
    run = functools.partial(jo.simulate, KEY, algorithm, task=_linear(slopes), rounds=5, trials=40)
    steps = _steps(run(jo.Channel(snr_db=np.inf))).reshape(-1, 1, 2)
    near = np.abs(steps + 0.5 * slopes).max(-1) < 1e-6  # [step, user]
    assert (near.sum(1) == 1).all() and near.any(0).all()
    loud = run(jo.Channel(snr_db=3.0))
    np.testing.assert_allclose(loud.deviation, np.sqrt(10**-0.3) / 2.0, rtol=1e-5)
    np.testing.assert_allclose(loud.power, 4.0 * 0.5, rtol=1e-5)


# Noise that is not Gaussian


@own
class Laplace:
    """Noise with heavier tails than Gauss's, of variance 1."""

    gaussian = False

    def draw(self, key, shape):
        return jax.random.laplace(key, shape, "float32") / jnp.sqrt(2.0)


def test_laplace_noise():
    """One coordinate: squared errors of mean ν and mean square 6ν², where Gauss's is 3ν²."""
    algorithm = jo.cotaf(0.1, 1, precode=jo.Constant(1.0))
    task = _linear(np.array([[1.0]]))
    history = jo.simulate(
        KEY, algorithm, jo.Channel(snr_db=0.0, noise=Laplace()), task, rounds=20, trials=400
    )
    error = np.asarray(history.error).reshape(-1)
    assert_within(error, 1.0)
    assert_within(error**2, 6.0)
    with pytest.raises(jo.InputError, match="over Laplace noise: MMSE is for Gaussian noise alone"):
        jo.simulate(KEY, jo.baaf(0.1, 1), jo.Channel(noise=Laplace()), task, 1, 1)


# A task on tokens


class Transformer(nn.Module):
    """One layer of causal self-attention over tokens [sample, position], logits of the next."""

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(5, 8)(tokens) + self.param("place", nn.initializers.normal(), (6, 8))[None]
        mask = nn.make_causal_mask(tokens)
        x = x + nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(x), mask=mask)
        x = x + nn.Dense(8)(nn.relu(nn.Dense(16)(nn.LayerNorm()(x))))
        return nn.Dense(5)(x)


def _transformer_init(key):
    return Transformer().init(key, jnp.zeros((1, 6), int))["params"]


def _transformer_loss(parameters, tokens):
    logits = Transformer().apply({"params": parameters}, tokens)[:, :-1]
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
    return losses.mean(-1)


def _perplexity(parameters, tokens):
    return {"perplexity": jnp.exp(_transformer_loss(parameters, tokens).mean())}


def _tokens():
    """Users count up by strides of their own, modulo 5: [user, sample, position]."""
    first = np.arange(4)[None, :, None]
    stride = np.array([1, 2])[:, None, None]
    return (first + stride * np.arange(6)) % 5


def _language():
    data = _tokens()
    return jo.tasks.empirical(_transformer_init, _transformer_loss, data, _perplexity, data[0])


@pytest.mark.slow
def test_a_small_transformer_learns_tokens():
    """One user, whole gradients: gradient descent by hand; two users: the perplexity falls."""
    task, data = _language(), jnp.asarray(_tokens())
    run = functools.partial(jo.simulate, KEY, channel=jo.Channel(), trials=1)
    alone = jo.tasks.empirical(_transformer_init, _transformer_loss, data[:1], _perplexity, data[0])
    start = jax.jit(alone.problem(0).init)(jax.random.key(1))
    first = jax.jit(_transformer_init)(jax.random.key(1))
    parameters, unravel = jax.flatten_util.ravel_pytree(first)
    np.testing.assert_array_equal(start, parameters)
    slope = jax.jit(jax.grad(lambda p: _transformer_loss(unravel(p), data[0]).mean()))
    for _ in range(4):
        parameters = parameters - 0.1 * slope(parameters)
    history = run(jo.fedavg(0.1, 2), task=alone, rounds=2, initial=start[None])
    np.testing.assert_allclose(history.model[0], parameters, atol=1e-5)
    quiet = jo.Channel(snr_db=20.0, snr_per="symbol")
    both = run(jo.cotaf(0.3, 5, 2, precode=jo.Online()), task=task, rounds=30, channel=quiet)
    perplexity = np.asarray(both.scores["perplexity"])[0]
    assert perplexity[-1] < perplexity[0] / 2 and both.loss[0, -1] < both.loss[0, 0] / 2
    assert both.to_xarray().perplexity.dims == ("trial", "round")


# Requirements on every part above

_SLOPES = np.array([[1.0, 2.0], [0.5, -1.0]])
_BARE = {"step_size": 0.1, "steps": 2, "precode": jo.Online()}
EVERY = {
    "FedDyn": (_feddyn(), {}, _quadratics),
    "Kalman": (jo.cobaaf(**_BARE, estimate=Kalman(0.1, 1.0)), {}, _quadratics),
    "top-k": (
        jo.cobaaf(**_BARE, compress=TopK(2)).replace(estimate=jo.Identity()),
        {},
        _quadratics,
    ),
    "one bit": (jo.cotaf(**_BARE, compress=OneBit(0.1)), {}, _quadratics),
    "phase only": (jo.cotaf(**_BARE), {"fading": jo.rayleigh(answer=PhaseOnly())}, _quadratics),
    "two antennas": (
        jo.cotaf(**_BARE),
        {"fading": jo.rayleigh(answer=UniformForcing(), antennas=2)},
        _quadratics,
    ),
    "sampled": (jo.cotaf(**_BARE).replace(medium=Sampled()), {}, _quadratics),
    "Laplace": (jo.cotaf(**_BARE), {"noise": Laplace()}, _quadratics),
    "transformer": (jo.cotaf(**_BARE, batch=2), {}, _language),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_every_part_sweeps_and_exports(name):
    """Two SNRs side by side, each the run it is alone; and nothing that a platform lacks."""
    algorithm, channel, task = EVERY[name]
    options = {"task": task(), "rounds": 3, "trials": 2}
    swept = jo.sweep(KEY, algorithm, jo.Channel(snr_db=[3.0, 20.0], **channel), **options)
    alone = jax.jit(
        lambda key, snr: jo.simulate(key, algorithm, jo.Channel(snr_db=snr, **channel), **options)
    )
    scale = np.abs(swept.model[1]).max()
    expected = alone(KEY, jnp.float32(20.0)).model
    np.testing.assert_allclose(swept.model[1], expected, rtol=0, atol=1e-4 * scale)
    assert np.isfinite(swept.model).all() and not np.array_equal(swept.model[0], swept.model[1])
    exported = export.export(alone, platforms=("cpu", "cuda", "tpu"))(KEY, jnp.float32(20.0))
    assert set(exported.platforms) == {"cpu", "cuda", "tpu"}
    assert "callback" not in exported.mlir_module()


def test_every_part_is_short():
    """At most 25 lines each, and public names alone."""
    for cls in OWN:
        lines = inspect.getsource(cls).splitlines()
        assert len(lines) <= 25, (cls, len(lines))
    lines = inspect.getsource(inspect.getmodule(test_every_part_is_short)).splitlines()
    assert [x for x in lines if x.startswith(("import jaxota", "from jaxota"))] == [
        "import jaxota as jo"
    ]
