"""How much do a step and a round compute and move, and what would accelerators make of it?

    python benchmarks/throughput/roofline.py [--out DIR]

XLA's own count of one compiled step of one user, and of one round without its steps: a count of a
loop takes its body once, so the loop is left out and its turns are multiplied. A PREDICTION from
data-sheet peaks, not a measurement: the time of a user-step is at least that of its operations at
the peak rate and that of its bytes at the bandwidth of the memory; launches and latencies come on
top, which many trials in flight hide.
"""

import bench
import jax
import jax.numpy as jnp
import numpy as np

import jaxota as jo
from jaxota import rounds
from jaxota.algorithms import Algorithm
from jaxota.stages.local import LocalUpdate, layout_of

# Peak operations per second in float32 and bytes per second, from the makers' data sheets. A TPU
# multiplies in bfloat16: products in float32 ("highest") take six passes.
PEAKS = {
    "NVIDIA A100 SXM 80 GB": (19.5e12, 2.039e12),
    "NVIDIA H100 SXM": (67e12, 3.35e12),
    "Google TPU v5e (6 passes)": (197e12 / 6, 819e9),
}
CHANNEL = jo.Channel(jnp.float32(10.0), jnp.float32(1.0))
STEPS = {"regression": (10, 10), "softmax": (5, 20)}  # K and batch of fig1 and fig4


def problem(kind):
    if kind == "regression":
        return jo.tasks.synthetic_regression(jax.random.key(0)).problem(0)
    rng = np.random.default_rng(0)
    x, y = rng.random((10, 60, 28, 28), np.float32), rng.integers(0, 10, (10, 60))
    module = jo.tasks.SoftmaxRegression(10)
    return jo.tasks.classification(module, (x, y), (x[0], y[0])).problem(0)


def cost(function, *arguments):
    """Operations and bytes of a compiled function, as XLA counts them."""
    told = jax.jit(function).lower(*arguments).compile().cost_analysis()
    return float(told["flops"]), float(told["bytes accessed"])


def step(kind):
    """One step of one user: rows gathered, gradient, update."""
    own, (_, batch) = problem(kind), STEPS[kind]
    held = layout_of(own)
    here = held.unravel(jnp.zeros(own.dim, "float32"))

    def take(here, samples):
        slope = held.gradient(here, 0, samples)
        return jax.tree.map(lambda x, v: x - 1e-2 * v, here, slope)

    operations, _ = cost(take, here, jnp.zeros(batch, "int32"))
    return operations, bytes_of_step(own.dim, batch, sample_floats(kind))


def sample_floats(kind):
    return {"regression": 11, "softmax": 785}[kind]


def bytes_of_step(dim, batch, width):
    """What a step must move: rows read; the model read, the gradient and the update written.

    By hand: XLA counts the table that rows are gathered from as read whole.
    """
    return 4.0 * (batch * width + 4 * dim)


def round_without_steps(kind):
    """Precoding, channel, estimate and score of one round of one trial, steps left out."""
    own, (turns, batch) = problem(kind), STEPS[kind]
    algorithm, channel = jo.cotaf(jnp.float32(1e-2), turns, batch, precode=jo.Online()), CHANNEL

    @jo.part
    class Given:
        """A local rule that has done its work already."""

        updates: jax.Array
        controlled = False
        reach = jnp.float32(0.1)

        def __call__(self, k_batch, k_control, problem, state):
            return LocalUpdate(self.updates)

        def remember(self, before, after, heard):
            return None

    keys = jax.random.split(jax.random.key(0))
    state = rounds._first_state(keys, algorithm, channel, own, jnp.zeros(own.dim))

    def once(updates, state):
        done = Algorithm(Given(updates), algorithm.precode, algorithm.estimate)
        keys = jax.random.split(jax.random.key(2), 7)
        after, info = rounds.one_round(keys, done, channel, own, (), state)
        return after, info, own.score(info.output) if kind == "regression" else ()

    return cost(once, jnp.zeros((own.users, own.dim)), state)


def main():
    question = __doc__.splitlines()[0]
    given = bench.options(question)
    facts, rows = {}, []
    for kind, (turns, _) in STEPS.items():
        operations, moved = step(kind)
        users = problem(kind).users
        around, around_bytes = (x / (users * turns) for x in round_without_steps(kind))
        facts[kind] = {"flops": operations, "bytes": moved, "per round": [around, around_bytes]}
        rows.append((f"{kind}, a step", f"{operations:.3g}", f"{moved:.3g}", ""))
        rows.append(
            (f"{kind}, a round's rest per step", f"{around:.3g}", f"{around_bytes:.3g}", "")
        )
        for name, (peak, bandwidth) in PEAKS.items():
            seconds = max((operations + around) / peak, (moved + around_bytes) / bandwidth)
            bound = "bandwidth" if moved / bandwidth > operations / peak else "operations"
            facts[kind][name] = 1 / seconds
            rows.append((f"{kind}, predicted on {name}", "", "", f"{1 / seconds:.1e} ({bound})"))
    header = "", "operations", "bytes", "user-steps/s, at most"
    bench.said(question, bench.accelerator(), header, rows)

    def bars(axes):
        for row, kind in enumerate(facts):
            rates = [facts[kind][name] for name in PEAKS]
            axes.barh(np.arange(len(PEAKS)) + 0.4 * row, rates, 0.35, label=kind)
        axes.set_yticks(np.arange(len(PEAKS)) + 0.2, list(PEAKS))
        axes.set_xscale("log")
        axes.set_xlabel("user-steps per second, predicted upper bound")
        axes.legend(fontsize=7)

    bench.kept(given.out, "roofline", facts, bars)


if __name__ == "__main__":
    main()
