"""The paper's statements, and the constants that they depend on, measured by simulation."""

from jaxota.theory.measuring import effective_noise as effective_noise
from jaxota.theory.measuring import measure as measure
from jaxota.theory.statements import TERMS as TERMS
from jaxota.theory.statements import Bound as Bound
from jaxota.theory.statements import Constants as Constants
from jaxota.theory.statements import Error as Error
from jaxota.theory.statements import proposition_1 as proposition_1
from jaxota.theory.statements import step_size as step_size
from jaxota.theory.statements import theorem_1 as theorem_1
from jaxota.theory.statements import theorem_2 as theorem_2
from jaxota.theory.statements import theorem_3 as theorem_3
from jaxota.theory.statements import weighted_average as weighted_average
from jaxota.theory.statements import weights as weights
