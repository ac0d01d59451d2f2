"""jaxota: `simulate` with a plan given, a device for each core."""

import time

import contest
import jax
import numpy as np

import jaxota as jo
from jaxota._core import devices as _devices

PARTS = {
    # By kind the module, and the algorithm: what the paper runs there.
    "regression": (None, jo.cotaf),
    "softmax": (jo.tasks.SoftmaxRegression(10), jo.baaf),
    "cnn": (jo.tasks.CNN(10), jo.cotaf),
}


calibration = {}  # seconds of the last one, its compilation included


def prepare(work: contest.Work) -> contest.Run:
    module, noisy = PARTS[work.kind]
    make = noisy if work.ratio else jo.fedavg
    channel = jo.Channel(snr_db=-10 * np.log10(work.ratio) if work.ratio else np.inf)
    data, key = (work.features, work.targets), jax.random.key(1)
    if module is None:
        task = jo.tasks.regression(*data)
    else:
        task = jo.tasks.classification(module, data, (work.features[0], work.targets[0]))
    plans = {}

    def run(models, rounds, full):
        algorithm = make(work.step_size, work.steps, None if full else work.batch)
        if full and noisy is jo.cotaf:  # as the others do it, for the noise to be compared
            algorithm = algorithm.replace(precode=jo.Online())
        if algorithm.needs and (rounds, full) not in plans:
            trials = min(len(models), 10)
            start = time.perf_counter()
            plan = jo.calibrate(key, algorithm, task, rounds, trials)
            plans[rounds, full] = jax.block_until_ready(plan)
            calibration["calibration_s"] = round(time.perf_counter() - start, 2)
        history = jo.simulate(
            key,
            algorithm,
            channel,
            task,
            rounds,
            len(models),
            initial=models,
            every=1 if module is None else rounds,
            plan=plans.get((rounds, full)),
        )
        return np.asarray(history.model)

    return run


if __name__ == "__main__":
    _devices.virtual()
    about = {
        "jax": jax.__version__,
        "threads": f"{jax.local_device_count()} devices",
        "floats": "float32",
        "matmul precision": "XLA's default",
    }
    contest.take_part(prepare, about, more=calibration)
