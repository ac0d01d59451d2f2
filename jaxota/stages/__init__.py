"""The stages of a round, one file each, in their order; their protocols are the names here."""

from jaxota.stages.channel import Carrier as Carrier
from jaxota.stages.channel import Medium as Medium
from jaxota.stages.channel import Noise as Noise
from jaxota.stages.compress import Compressor as Compressor
from jaxota.stages.estimate import Estimator as Estimator
from jaxota.stages.fading import Answer as Answer
from jaxota.stages.fading import Fades as Fades
from jaxota.stages.fading import Law as Law
from jaxota.stages.local import LocalRule as LocalRule
from jaxota.stages.precode import Precoder as Precoder
from jaxota.stages.server import Server as Server
from jaxota.tasks.problem import Problem as Problem
from jaxota.tasks.problem import Task as Task
