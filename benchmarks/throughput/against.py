"""How many user-steps per second do jaxota and the alternatives reach here, on the same work?

    python benchmarks/throughput/against.py [--short] [--out DIR] [--only regression]

A user-step is one SGD step of one user in one trial: minibatch drawn, gathered, applied. Every
contender is a process of its own, in an environment of its own (`make bench-peers` builds them),
and all run in turn. Contenders that are missing, and contests that are not chosen, keep the rows
that DIR has of them, with the ratio of their own run. Before a contender's time counts, two
rounds of FedAvg with full gradients must give the models that a loop in float64 gives, and the
noise of COTAF, where it draws one, must have the right power. Compiling and calibrating are not
timed; the first call, which holds them, is shown beside. `python docs/put_speed.py` puts the
results into the pages.
"""

import json
import shutil
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import bench
import numpy as np
from contenders.contest import Work

REPEATS = 3  # of each process; three processes each


class Contender(NamedTuple):
    name: str
    script: str
    environment: str = ""  # of `make bench-peers`; the one at hand
    noisy: bool = False  # whether it does COTAF's work; FedAvg's

    @property
    def python(self) -> Path | None:
        """The interpreter that can run it, if there is one."""
        if self.script == "plain_c" and not shutil.which("cc"):
            return None
        if not self.environment:
            return Path(sys.executable)
        python = bench.ROOT / ".bench" / self.environment / "bin" / "python"
        return python if python.exists() else None


OURS = Contender("jaxota", "ours", noisy=True)
CONTESTS = {
    "regression": (
        "fig1's COTAF: 20 users, 10 steps, batch 10, d = 10, 60 rounds, 400 trials",
        OURS,
        Contender("plain C", "plain_c", noisy=True),
        Contender("NumPy, batched by hand", "numpy_batched", noisy=True),
        Contender("NumPy, a process per core", "numpy_processes", noisy=True),
        Contender("PyTorch, batched by hand", "torch_batched", "torch", noisy=True),
        Contender("PyTorch, tuned by hand", "torch_tuned", "torch", noisy=True),
        Contender("DrJAX", "drjax_peer", "drjax"),
        Contender("NumPy, a loop", "numpy_loop"),
        Contender("FedJAX", "fedjax_peer", "fedjax"),
        Contender("PyTorch, a loop", "torch_loop", "torch"),
        Contender("pfl", "pfl_peer", "pfl"),
        Contender("Flower", "flower_peer", "flower"),
    ),
    "full": (
        "the same with full gradients, from Gram matrices",
        Contender("jaxota", "ours_full", noisy=True),
        Contender("NumPy, batched by hand", "numpy_gradients", noisy=True),
        Contender("NumPy, a step as one product", "numpy_statistics", noisy=True),
    ),
    "softmax": (
        "fig4's BAAF: softmax regression on MNIST's shapes, 10 users, 5 steps, batch 20, 16 trials",
        OURS,
        Contender("PyTorch, batched by hand", "torch_softmax", "torch", noisy=True),
        Contender("PyTorch, tuned by hand", "torch_softmax_tuned", "torch", noisy=True),
    ),
    "cnn": (
        "a CNN of 9,098 parameters on MNIST's shapes, 10 users, 5 steps, batch 20, 4 trials",
        OURS,
        Contender("PyTorch, vmap of functional_call", "torch_cnn", "torch", noisy=True),
    ),
}


def work(kind: str) -> Work:
    """What all contenders of a contest do."""
    rng = np.random.default_rng(0)
    if kind in ("regression", "full"):
        mean = rng.normal(1.0, np.sqrt(0.1), 20)[:, None, None]
        features = (mean + rng.standard_normal((20, 100, 10))).astype(np.float32)
        weights = rng.normal(-4.0, 1.0, (20, 1)) + rng.standard_normal((20, 10))
        targets = np.einsum("nsd,nd->ns", features, weights).astype(np.float32)
        models = rng.standard_normal((400, 10), np.float32)
        return Work("regression", features, targets, models, 10, 10, 1e-2, 60, 0.1)
    shapes: Any = {
        "softmax": ((10,), (784, 10)),
        "cnn": ((8,), (9, 8), (16,), (72, 16), (10,), (784, 10)),
    }[kind]
    trials, samples, rounds = {"softmax": (16, 600, 20), "cnn": (4, 100, 4)}[kind]
    features = rng.random((10, samples, 784 if kind == "softmax" else 28 * 28), np.float32)
    if kind == "cnn":
        features = features.reshape(10, samples, 28, 28)
    labels = rng.integers(0, 10, (10, samples)).astype(np.int32)
    dim = sum(int(np.prod(shape)) for shape in shapes)
    models = (0.05 * rng.standard_normal((trials, dim))).astype(np.float32)
    return Work(kind, features, labels, models, 5, 20, 1e-2, rounds, 0.1, shapes)


def reference(work: Work, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """FedAvg with full gradients, in float64: models [trial, d] and the largest energy [trial]."""
    x, y, models = (np.asarray(a, float) for a in (work.features, work.targets, work.models))
    for _ in range(rounds):
        local = np.repeat(models[:, None], len(x), 1)
        for _ in range(work.steps):
            residual = np.einsum("nsd,tnd->tns", x, local) - y
            local -= 2 * work.step_size / x.shape[1] * np.einsum("tns,nsd->tnd", residual, x)
        energy = ((local - models[:, None]) ** 2).sum(-1).max(-1)
        models = local.mean(1)
    return models, energy


def check(kind: str, contender: Contender, facts: dict[str, Any], work: Work, ours: Any) -> None:
    """Refuse a contender that computes something else: another model, or another noise."""
    linear = kind in ("regression", "full")
    right = reference(work, 2)[0][:2] if linear else np.asarray(ours["checked"])
    off = np.abs(np.asarray(facts["checked"]) - right).max() / np.abs(right).max()
    if not off < 1e-4:
        raise SystemExit(f"{contender.name}: models are off by {off:.1e} of their scale")
    if linear and contender.noisy:
        _, energy = reference(work, 1)
        ratio = np.asarray(facts["noise"]) / (work.ratio * energy / len(work.features) ** 2)
        error = np.sqrt(2 / (ratio.size * work.models.shape[1]))
        if not abs(ratio.mean() - 1) < 4 * error:
            raise SystemExit(f"{contender.name}: noise of {ratio.mean():.3f} times its power")


def contest(kind: str, short: bool, peers: bool = True) -> list[dict[str, Any]]:
    """The facts of each contender that is here, ours first; `peers` have environments of their
    own."""
    _, *contenders = CONTESTS[kind]
    here = [each for each in contenders if each.python and (peers or not each.environment)]
    found: dict[Contender, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "work.npz"
        task = work(kind)
        task.save(str(path))
        for _ in range(1 if short else 3):
            for each in here:
                bench.going_on(f"{kind}: {each.name}")
                script = bench.HERE / "contenders" / f"{each.script}.py"
                repeats = 5 if short else REPEATS
                try:
                    told = bench.child(script, path, repeats, python=each.python)
                except RuntimeError as error:
                    if not each.environment:
                        raise
                    print(f"{each.name} does not run here: {error}", file=sys.stderr)
                    continue
                facts = json.loads(told.splitlines()[-1])
                check(kind, each, facts, task, found.get(here[0], facts))
                known = found.setdefault(each, facts | {"seconds": []})
                known["seconds"] += facts["seconds"]
    for each, facts in found.items():
        facts["name"], facts["noisy"] = each.name, each.noisy
        # The quickest run, because others' work on a shared machine can only slow a run down.
        facts["rate"] = facts["user_steps"] / min(facts["seconds"])
        del facts["checked"], facts["noise"]
    return list(found.values())


def main() -> None:
    question = __doc__.splitlines()[0]
    options = bench.options(question, only=",".join(CONTESTS))
    before = earlier(options.out)
    results = dict(before)
    for kind in options.only.split(","):
        title, *contenders = CONTESTS[kind]
        facts = results[kind] = contest(kind, options.short)
        rows = []
        for each in facts:
            about = ", ".join(f"{k} {v}" for k, v in each["about"].items() if k != "cores")
            rows.append(
                (
                    each["name"],
                    work_in_words(each, facts[0]),
                    f"{each['rate']:.2e}",
                    f"{facts[0]['rate'] / each['rate']:.2f}",
                    f"{each['first']:.1f}",
                    about,
                )
            )
        header = "", "work", "user-steps/s", "jaxota is × faster", "first call, s", "how"
        count = min(len(each["seconds"]) for each in facts)
        bench.said(f"{title}; best of at least {count}", bench.machine(), header, rows)
        missing = [each.name for each in contenders if not each.python]
        if missing:
            print(f"not here: {', '.join(missing)} (make bench-peers)\n")
        results[kind] = facts + kept_rows(before.get(kind, []), facts, contenders)
    bench.kept(options.out, "against", {"machine": bench.machine(), **results}, draw(results))


def earlier(folder: Path | None) -> dict[str, Any]:
    """Results of all contests that a folder has, in the order of `CONTESTS`."""
    path = folder / "against.json" if folder else None
    kept = json.loads(path.read_text()) if path and path.exists() else {}
    return {kind: kept[kind] for kind in CONTESTS if kind in kept}


def kept_rows(
    before: list[dict[str, Any]], facts: list[dict[str, Any]], contenders: Any
) -> list[dict[str, Any]]:
    """Rows of an earlier run whose contenders did not run now, with jaxota's lead in that run."""
    gone = {each.name for each in contenders} - {each["name"] for each in facts}
    return [
        {"times": before[0]["rate"] / row["rate"], **row} for row in before if row["name"] in gone
    ]


def work_in_words(facts: dict[str, Any], ours: dict[str, Any]) -> str:
    """What a contender does where it is less than what jaxota does."""
    words = [] if facts["noisy"] else ["FedAvg without noise"]
    for name in ("trials", "rounds"):
        if facts[name] != ours[name]:
            words.append(f"{facts[name]} {name if facts[name] > 1 else name[:-1]}")
    return ", ".join(words) or "with noise"


def draw(results: dict[str, Any]):
    """Bars of the first contest, on a logarithmic axis."""

    def onto(axes: Any) -> None:
        kind, facts = next(iter(results.items()))
        facts = [each for each in facts if "times" not in each]  # of this run
        facts.sort(key=lambda each: each["rate"])
        names = [each["name"] + ("" if each["noisy"] else " *") for each in facts]
        colours = ["#0072B2" if name == "jaxota" else "#999999" for name in names]
        axes.barh(names, [each["rate"] for each in facts], color=colours)
        axes.set_xscale("log")
        axes.set_xlabel("user-steps per second")
        title = textwrap.fill(CONTESTS[kind][0], 50)
        axes.set_title(f"{title}\n* FedAvg without noise", fontsize=7)
        for row, each in enumerate(facts):
            axes.text(each["rate"], row, f" {each['rate']:.1e}", va="center", fontsize=7)
        axes.margins(x=0.25)

    return onto


if __name__ == "__main__":
    main()
