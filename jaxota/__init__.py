"""jaxota: over-the-air federated learning, whole Monte Carlo experiments as one JAX program."""

from jaxota import tasks as tasks
from jaxota import theory as theory
from jaxota.algorithms import Algorithm as Algorithm
from jaxota.algorithms import baaf as baaf
from jaxota.algorithms import cobaaf as cobaaf
from jaxota.algorithms import cotaf as cotaf
from jaxota.algorithms import fedavg as fedavg
from jaxota.algorithms import noisy_fedavg as noisy_fedavg
from jaxota.algorithms import scaffold as scaffold
from jaxota.calibration import calibrate as calibrate
from jaxota.channel import Channel as Channel
from jaxota.errors import InputError as InputError
from jaxota.estimate import MMSE as MMSE
from jaxota.estimate import Identity as Identity
from jaxota.estimate import JamesStein as JamesStein
from jaxota.estimate import PooledMMSE as PooledMMSE
from jaxota.estimate import ReportedMMSE as ReportedMMSE
from jaxota.fading import nakagami as nakagami
from jaxota.fading import rayleigh as rayleigh
from jaxota.fading import rician as rician
from jaxota.history import History as History
from jaxota.precode import Bounded as Bounded
from jaxota.precode import Constant as Constant
from jaxota.precode import Offline as Offline
from jaxota.precode import Online as Online
from jaxota.simulation import simulate as simulate
from jaxota.sweeping import sweep as sweep
from jaxota.types import Plan as Plan

__version__ = "0.1.0"
