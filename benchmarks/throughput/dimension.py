"""What do time and memory of a round grow like with d, beside plain JAX written by hand?

    python benchmarks/throughput/dimension.py [--short] [--largest D] [--out DIR]

8 users, 2 steps, minibatches of 4, one trial, a two-layer network of any width. The round by hand
takes the same steps and adds the same noise to the mean update; it keeps no records. Times are
those of a round, from runs of two lengths in turn. Memory is that of the compiled program at work.
"""

import functools

import bench
import jax
import jax.numpy as jnp
import numpy as np

import jaxota as jo
from jaxota._core import arguments as _arguments
from jaxota.simulation import program

USERS, SAMPLES, INPUTS, STEPS, BATCH, STEP_SIZE = 8, 20, 32, 2, 4, 1e-2
NOISE = float(np.sqrt(0.1)) / USERS  # of deviation √(sw2/P)/N where the gain is 1
ROUNDS = {"few": 2, "many": 52, "many of a large model": 7}


def loss(parameters, batch):
    hidden = jnp.tanh(batch["x"] @ parameters["first"])
    return (hidden @ parameters["second"] - batch["y"]) ** 2


def init(width):
    def start(key):
        k_first, k_second = jax.random.split(key)
        return {
            "first": 0.1 * jax.random.normal(k_first, (INPUTS, width)),
            "second": jax.random.normal(k_second, (width,)) / width,
        }

    return start


def by_hand(width, data, rounds):
    """The compiled program of all rounds in plain JAX: no parts, no records."""

    def user(own, key, parameters):
        def step(moved, chosen):
            at = jax.tree.map(jnp.add, parameters, moved)
            batch = jax.tree.map(lambda x: x[chosen], own)
            gradient = jax.grad(lambda p: loss(p, batch).mean())(at)
            return jax.tree.map(lambda m, g: m - STEP_SIZE * g, moved, gradient), None

        drawn = jax.random.randint(key, (STEPS, BATCH), 0, SAMPLES)
        return jax.lax.scan(step, jax.tree.map(jnp.zeros_like, parameters), drawn)[0]

    def round_(parameters, key):
        k_batch, k_noise = jax.random.split(key)
        moved = jax.vmap(user, (0, 0, None))(data, jax.random.split(k_batch, USERS), parameters)

        def received(path, x, average):
            noise = jax.random.normal(jax.random.fold_in(k_noise, len(path[0].key)), x.shape)
            return x + average + NOISE * noise

        means = jax.tree.map(lambda x: x.mean(0), moved)
        return jax.tree.map_with_path(received, parameters, means), None

    def run(key):
        return jax.lax.scan(round_, init(width)(key), jax.random.split(key, rounds))[0]

    return jax.jit(run).lower(jax.random.key(1)).compile()


def ours(task, rounds):
    algorithm = jo.noisy_fedavg(STEP_SIZE, STEPS, BATCH, precode=jo.Constant(1.0))
    run = jax.random.key(1), algorithm, jo.Channel(10.0), task, rounds, 1
    values, options = _arguments.experiment(*run, every=rounds)
    compiled = program.lower(options, **values).compile()
    return compiled, functools.partial(compiled, **values)


def measured(dim, repeats):
    """Seconds of a round and bytes at work, of jaxota and by hand."""
    width = max(1, dim // (INPUTS + 1))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((USERS, SAMPLES, INPUTS), np.float32)
    data = {"x": x, "y": x.sum(2)}
    task, compiled, runs = jo.tasks.empirical(init(width), loss, data), {}, {}
    few = ROUNDS["few"]
    many = ROUNDS["many" if dim < 10**5 else "many of a large model"]
    for rounds in (few, many):
        compiled["jaxota"], runs["jaxota", rounds] = ours(task, rounds)
        made = compiled["by hand"] = by_hand(width, jax.tree.map(jnp.asarray, data), rounds)
        runs["by hand", rounds] = functools.partial(made, jax.random.key(1))
    blocked = {k: lambda run=run: jax.block_until_ready(run()) for k, run in runs.items()}
    seconds = bench.medians(blocked, repeats)
    of_round = {k: (seconds[k, many] - seconds[k, few]) / (many - few) for k in compiled}
    work = {k: each.memory_analysis().temp_size_in_bytes for k, each in compiled.items()}
    return {"d": task.dim, "seconds": of_round, "bytes": work}


def main():
    question = __doc__.splitlines()[0]
    given = bench.options(question, largest=10_000_000)
    dims = [10**k for k in range(3, 8) if 10**k <= given.largest]
    found = [measured(dim, 3 if given.short or dim > 10**6 else 9) for dim in dims]
    rows = []
    for each in found:
        (time, plain), (work, held) = each["seconds"].values(), each["bytes"].values()
        cells = [f"{1e3 * time:.3g}", f"{time / plain:.2f}", f"{work / 2**20:.3g}"]
        rows.append((f"{each['d']:,}", *cells, f"{work / held:.2f}"))
    header = "d", "ms a round", "times by hand", "MiB at work", "times by hand"
    facts = bench.machine() | bench.accelerator()
    bench.said(question, facts, header, rows)

    def curves(axes):
        dims = [each["d"] for each in found]
        for name in ("jaxota", "by hand"):
            axes.loglog(dims, [1e3 * each["seconds"][name] for each in found], "o-", label=name)
        axes.set_xlabel("d")
        axes.set_ylabel("ms per round")
        axes.legend(fontsize=7)

    bench.kept(given.out, "dimension", {"machine": facts, "rows": found}, curves)


if __name__ == "__main__":
    main()
