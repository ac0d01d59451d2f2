"""The stages of a round, one file each, in their order; their protocols are the names here."""

from jaxota.stages.protocols import Answer as Answer
from jaxota.stages.protocols import Carrier as Carrier
from jaxota.stages.protocols import Compressor as Compressor
from jaxota.stages.protocols import Estimator as Estimator
from jaxota.stages.protocols import Fades as Fades
from jaxota.stages.protocols import Law as Law
from jaxota.stages.protocols import LocalRule as LocalRule
from jaxota.stages.protocols import Medium as Medium
from jaxota.stages.protocols import Noise as Noise
from jaxota.stages.protocols import Precoder as Precoder
from jaxota.stages.protocols import Problem as Problem
from jaxota.stages.protocols import Server as Server
from jaxota.stages.protocols import Task as Task
