"""What does a round of each algorithm cost, against one of COTAF?

    python benchmarks/throughput/cost.py [--short]

fig1's work, 400 trials of 60 rounds on a device for each core, warm, calibrations left out: medians
of runs in turn.
"""

import bench


def main():
    arguments = bench.options(__doc__.splitlines()[0])
    from jaxota._core import devices as _devices

    _devices.virtual()
    import jax

    import jaxota as jo

    key, local = jax.random.key(0), {"step_size": 1e-2, "steps": 10, "batch": 10}
    task = jo.tasks.synthetic_regression(key)
    algorithms = {
        "COTAF": jo.cotaf(**local, precode=jo.Online()),
        "noisy FedAvg": jo.noisy_fedavg(**local, precode=jo.Constant(1.0)),
        "BAAF": jo.baaf(**local, precode=jo.Online()),
        "COBAAF": jo.cobaaf(**local, precode=jo.Online()),
        "WISE": jo.wise(**local),
    }

    def run(algorithm):
        history = jo.simulate(key, algorithm, jo.Channel(), task, rounds=60, trials=400)
        return jax.block_until_ready(history.model)

    runs = {name: (lambda each=each: run(each)) for name, each in algorithms.items()}
    seconds = bench.medians(runs, 3 if arguments.short else 9)
    rows = [[name, f"{s:.3f}", f"{s / seconds['COTAF']:.2f}"] for name, s in seconds.items()]
    facts = bench.machine() | bench.accelerator()
    bench.said(__doc__.splitlines()[0], facts, ["algorithm", "seconds", "of COTAF"], rows)


if __name__ == "__main__":
    main()
