"""One communication round, and all rounds of one trial."""

import jax
import jax.numpy as jnp

from jaxota.algorithms import Algorithm
from jaxota.channel import Block, Channel, Link, superpose
from jaxota.types import Array, Info, State


def one_round(keys, algorithm: Algorithm, channel: Channel, problem, moments, state: State):
    """One communication round of one trial: `state` → the next one, and what was seen.

    `keys` [7] serve the minibatches, the controls' minibatches, the noise of both blocks, and the
    links; `moments` is the plan's row for this round, (model, control), or `()`.
    """
    k_batch, k_control, k_noise, k_control_noise, *k_links = keys
    local, channel = algorithm.local, algorithm.precode.over(channel)
    update, controls = local(k_batch, k_control, problem, state)
    link, control_link, fading = channel.links(
        k_links, state.fading, problem.users, local.controlled
    )
    anyone = link.heard.sum() > 0
    model_moments, control_moments = moments or ((), ())

    def aggregate(key, block: Block, link: Link, before):
        energy = algorithm.precode.energy(block)
        noise = channel.noise_variance(problem.dim)
        received, deviation, power = superpose(key, block, energy, noise, link)
        estimate = algorithm.estimate(received, deviation, block, link)
        truth = block.origin + link.mean(block.values)
        error = jnp.sum((estimate - truth) ** 2)
        return jnp.where(anyone, estimate, before), jnp.where(anyone, error, 0.0), power

    reach = local.steps * local.step_size
    block = Block(update, state.model, channel.power, reach, model_moments)
    model, error, power = aggregate(k_noise, block, link, state.model)
    control, kept, control_error, control_power = (), (), (), ()
    if local.controlled:
        nowhere, unit = jnp.zeros_like(model), jnp.float32(1.0)
        block = Block(controls, nowhere, channel.control_budget, unit, control_moments)
        control, control_error, control_power = aggregate(
            k_control_noise, block, control_link, state.control
        )
        kept = jnp.where(link.heard[:, None] > 0, controls, state.controls)

    average, weight = _accumulate(state, model, problem.strong_convexity * reach)
    after = State(model, control, kept, average, weight, fading)
    heard = link.heard.sum()
    return after, Info(update, controls, power, control_power, error, control_error, heard)


def one_trial(key, trial, algorithms, channel, problem, moments, model, rounds: int, reveal):
    """All rounds of one trial, for several algorithms side by side on the same random numbers.

    `moments` holds each algorithm's rows of its plan; `model` [d] is where all start, or `()` to
    draw it from the task. Returns each algorithm's last state, and `reveal(r, before, info, after)`
    of each of its rounds.
    """
    # All keys of a trial from one call: threefry is most of what there is to compile.
    keys = jax.random.split(jax.random.fold_in(key, trial), 3 + 7 * rounds)
    k_init, k_start, k_fading, k_rounds = *keys[:3], keys[3:].reshape(rounds, 7)
    model = problem.init(k_init) if isinstance(model, tuple) else model

    def first(algorithm):
        control, controls = algorithm.local.start(k_start, problem, model)
        fading = algorithm.precode.over(channel).start(k_fading, problem.users)
        return State(model, control, controls, model, jnp.float32(1.0), fading)

    def step(states, xs):
        r, keys, rows = xs
        after, seen = [], []
        for algorithm, row, state in zip(algorithms, rows, states, strict=True):
            next_state, info = one_round(keys, algorithm, channel, problem, row, state)
            after.append(next_state)
            seen.append(reveal(r, state, info, next_state))
        return tuple(after), tuple(seen)

    states = tuple(map(first, algorithms))
    return jax.lax.scan(step, states, (jnp.arange(1, rounds + 1), k_rounds, moments))


def _accumulate(state: State, model: Array, contraction: Array):
    """The average with weights w_r = (1 − μη̃/2)^{1−r}, kept in units of the newest weight."""
    weight = jnp.maximum(1.0 - contraction / 2.0, 0.0) * state.weight + 1.0
    return state.average + (model - state.average) / weight, weight


def in_chunks(function, trials, chunk: int):
    """`function` of every trial, `chunk` at a time in one program; results stacked [trial, …]."""
    count = len(trials)
    if count <= chunk:
        return jax.vmap(function)(trials)
    pieces = -(-count // chunk)
    size = -(-count // pieces)
    padded = jnp.pad(trials, (0, pieces * size - count), mode="edge").reshape(pieces, size)
    results = jax.lax.map(jax.vmap(function), padded)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:count], results)
