"""Has anything become slower, measured by ratios that mean the same on every machine?

    python benchmarks/throughput/check.py [--update]

Each ratio is of two things that run in turn here and now. One that has fallen below 70 % of its
value in ratios.json fails; --update writes that file anew.
"""

import json
import sys

import against
import bench
import jax
import jax.numpy as jnp
import limits

import jaxota as jo
from jaxota._core import devices as _devices

KEPT = bench.HERE / "ratios.json"
LEAST = 0.7


def ratios() -> dict[str, float]:
    """How many times faster the first is than the second."""
    found = {}
    for kind in ("regression", "full"):
        ours, *others = against.contest(kind, short=True, peers=False)
        for other in others:
            if "loop" not in other["name"]:
                title = f"{kind}: simulate against {other['name']}"
                found[title] = ours["rate"] / other["rate"]
    _devices.virtual()
    seconds = bench.medians(limits.runs(), 7)
    loop, whole = seconds["a bare loop of FedAvg"], seconds["simulate, COTAF"]
    found["regression: simulate against a bare loop"] = loop / whole
    seconds = bench.medians(sweeps(), 7)
    found["a sweep of 7 SNRs against 7 calls of simulate"] = seconds["7 calls"] / seconds["sweep"]
    return found


def sweeps():
    task, key = jo.tasks.synthetic_regression(jax.random.key(0)), jax.random.key(1)
    algorithm, snrs = jo.cotaf(1e-2, 10, 10), jnp.linspace(-10.0, 20.0, 7)
    plan = jo.calibrate(key, algorithm, task, 60)

    def run(door, snr):
        history = door(key, algorithm, jo.Channel(snr), task, 60, 100, plan=plan)
        return jax.block_until_ready(history)

    return {
        "7 calls": lambda: [run(jo.simulate, snr) for snr in snrs],
        "sweep": lambda: run(jo.sweep, snrs),
    }


def main() -> int:
    found = ratios()
    if "--update" in sys.argv[1:]:
        KEPT.write_text(json.dumps({k: round(v, 2) for k, v in found.items()}, indent=1) + "\n")
    kept = json.loads(KEPT.read_text())
    fallen = [name for name, ratio in found.items() if ratio < LEAST * kept.get(name, 0.0)]
    rows = [
        (name, f"{ratio:.2f}", f"{kept.get(name, float('nan')):.2f}", "SLOWER" * (name in fallen))
        for name, ratio in found.items()
    ]
    bench.said(__doc__.splitlines()[0], bench.machine(), ("", "here", "kept", ""), rows)
    return int(bool(fallen))


if __name__ == "__main__":
    sys.exit(main())
