"""What do hashing, gathering, arithmetic and noise alone cost here: how high is the roof?

    python benchmarks/throughput/limits.py [--short] [--out DIR]

Bare loops of fig1's work (20 users, 10 steps, batch 10, d = 10, 60 rounds) with all else left out,
beside the loop of them all and `simulate`, which also precodes, estimates, scores and keeps books.
"""

import functools

import bench
import jax
import jax.numpy as jnp

import jaxota as jo
from jaxota._core import devices as _devices
from jaxota._core import prng
from jaxota._core import prng as _random
from jaxota._core.devices import Spread, compiled, on_devices, spread

USERS, SAMPLES, DIM, STEPS, BATCH, ROUNDS, TRIALS, RATE = 20, 100, 10, 10, 10, 60, 400, 1e-2


def draw(words):
    """The samples [step, user, batch] of a round."""
    streams = jnp.arange(USERS)[None] * STEPS + jnp.arange(STEPS)[:, None]
    return prng.minibatch_indices(words, streams, BATCH, jnp.int32(SAMPLES))


def rows(table, samples):
    chosen = samples + (jnp.arange(USERS) * SAMPLES)[:, None]
    return table.at[chosen].get(mode="promise_in_bounds", wrap_negative_indices=False)


def descend(models, drawn):
    features, targets = drawn[..., :-1], drawn[..., -1]
    residual = (features * models[:, None]).sum(-1) - targets
    return models - 2 * RATE / BATCH * (residual[..., None] * features).sum(1)


def hashing(table, key, model):
    return model + 1e-9 * draw(prng.words(key)).sum((0, 1, 2)).astype(jnp.float32)


def gathering(table, key, model):
    """Drawn by the hash, too; what is gathered is written, and of the last step used."""
    first = jnp.zeros((USERS, BATCH, DIM + 1))
    step = lambda _, samples: (rows(table, samples), None)  # noqa: E731
    last, _ = jax.lax.scan(step, first, draw(prng.words(key)))
    return model + 1e-9 * last.mean((0, 1))[:-1]


def arithmetic(table, key, model):
    """On the same rows in every step, which stay in the nearest cache."""
    same = table.reshape(USERS, SAMPLES, -1)[:, :BATCH]
    step = lambda models, _: (descend(models, same), None)  # noqa: E731
    return jax.lax.scan(step, jnp.tile(model, (USERS, 1)), None, STEPS)[0].mean(0)


def noise(table, key, model):
    return model + 1e-9 * _random.normal(key, (DIM,))


def loop(table, key, model):
    step = lambda models, samples: (descend(models, rows(table, samples)), None)  # noqa: E731
    models = jnp.tile(model, (USERS, 1))
    return jax.lax.scan(step, models, draw(prng.words(key)))[0].mean(0)


def stepwise(table, key, model):
    """The same, but each step's samples are drawn in the step."""
    words, streams = prng.words(key), jnp.arange(USERS) * STEPS

    def step(models, k):
        samples = prng.minibatch_indices(words, streams + k, BATCH, jnp.int32(SAMPLES))
        return descend(models, rows(table, samples)), None

    return jax.lax.scan(step, jnp.tile(model, (USERS, 1)), jnp.arange(STEPS))[0].mean(0)


@functools.partial(compiled, static=("options", "part"))
def bare(options, part, table, key, trials):
    """All rounds of all trials of one part, spread over the devices."""

    def mine(values, trials):
        table, key = values

        def trial(t):
            keys = _random.split(_random.fold_in(key, t), ROUNDS)
            step = lambda model, key: (part(table, key, model), None)  # noqa: E731
            return jax.lax.scan(step, _random.normal(keys[0], (DIM,)), keys)[0]

        return jax.vmap(trial)(trials)

    return on_devices(mine, options.over, [table, key], [None, None], trials)


class Options:
    """What `compiled` asks for; one object, so that it is one program."""

    def __init__(self, over: Spread) -> None:
        self.over = over


def runs():
    """By name, what is timed."""
    task = jo.tasks.synthetic_regression(jax.random.key(0), USERS, SAMPLES, DIM)
    problem, key = task.problem(0), jax.random.key(1)
    task, options = jo.tasks.regression(problem.features, problem.targets), Options(spread(TRIALS))
    algorithm, channel = jo.cotaf(RATE, STEPS, BATCH), jo.Channel(10.0)
    plan = jo.calibrate(key, algorithm, task, ROUNDS, 10)

    def alone(part):
        return lambda: bare(
            options, part, problem.table, key, jnp.arange(TRIALS)
        ).block_until_ready()

    return {
        "hash": alone(hashing),
        "hash and gather": alone(gathering),
        "arithmetic": alone(arithmetic),
        "noise": alone(noise),
        "a bare loop of FedAvg": alone(loop),
        "the same, drawn step by step": alone(stepwise),
        "simulate, COTAF": lambda: jax.block_until_ready(
            jo.simulate(key, algorithm, channel, task, ROUNDS, TRIALS, plan=plan)
        ),
    }


def main() -> None:
    question = __doc__.splitlines()[0]
    given = bench.options(question)
    _devices.virtual()
    seconds = bench.medians(runs(), 5 if given.short else 11)
    count = TRIALS * ROUNDS * USERS * STEPS
    each = {name: 1e9 * taken / count for name, taken in seconds.items()}
    table = [(name, f"{ns:.1f}", f"{1e9 / ns:.2e}") for name, ns in each.items()]
    header = "", "ns a user-step", "user-steps/s"
    bench.said(question, bench.machine() | bench.accelerator(), header, table)
    facts = {"machine": bench.machine() | bench.accelerator(), "nanoseconds": each}

    def bars(axes):
        axes.barh(list(each)[::-1], list(each.values())[::-1], color="#0072B2")
        axes.set_xlabel("nanoseconds per user-step, all cores")

    bench.kept(given.out, "limits", facts, bars)


if __name__ == "__main__":
    main()
