"""jaxota with full gradients: `simulate` with a plan given, a device for each core."""

import contest
import jax
import ours

from jaxota._core import devices as _devices

if __name__ == "__main__":
    _devices.virtual()
    about = {"jax": jax.__version__, "threads": f"{jax.local_device_count()} devices"}
    contest.take_part(ours.prepare, about, minibatches=False)
