"""The stages of a round, one file each, and the protocols that parts of your own must follow.

A part is a class decorated with `@jo.part` that has the members of its stage's protocol; nothing is
inherited. `docs/parts.md` shows one of each kind. Continuous fields are declared with
`jo.traced()`, counts and options with `jo.static()`. A part may also have `check(path, setting)`,
called before anything runs, which raises `jo.InputError` where the algorithm, channel and task of
`setting` do not fit it.

Methods are written for one trial, without batch axes, and must be pure: `jax.vmap` runs trials and
settings, `jax.lax.scan` runs rounds. Memory is any pytree of arrays, of the same shapes in every
round, None for no memory; every array of the users' memory begins with the axis [user].

`jaxota.theory` needs a little more of the parts that it describes: `step_size` and `batch` of the
local rule, `floors` (h_min and ρ_min) of the answer to fading, and `spread(moments, count)` of the
estimator, the prior variance of the average of `count` users.
"""

from jaxota.stages.answers import Answer as Answer
from jaxota.stages.channel import Carrier as Carrier
from jaxota.stages.channel import Medium as Medium
from jaxota.stages.channel import Noise as Noise
from jaxota.stages.compress import Compressor as Compressor
from jaxota.stages.estimate import Estimator as Estimator
from jaxota.stages.fading import Fades as Fades
from jaxota.stages.fading import Law as Law
from jaxota.stages.local import LocalRule as LocalRule
from jaxota.stages.precode import Precoder as Precoder
from jaxota.stages.server import Server as Server
from jaxota.tasks.problem import Problem as Problem
from jaxota.tasks.problem import Task as Task
