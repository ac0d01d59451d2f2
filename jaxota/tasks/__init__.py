"""What is learned, and who holds which data.

A task offers `users`, `dim` and `problem(trial)`. The problem is what the engine computes with:
`init(key)` [d], `gradient(model, user, samples)` [d], `full_gradient(model, user)` [d],
`score(model)` (a dict of numbers by their names), `head()` (the first fifth of every user's
samples, for calibration), `counts` [user] and `strong_convexity`. `floats_per_trial(batch)` bounds
what a trial's data take in memory.
"""

from jaxota.tasks.empirical_risk import empirical as empirical
from jaxota.tasks.images.datasets import cifar10 as cifar10
from jaxota.tasks.images.datasets import digits as digits
from jaxota.tasks.images.datasets import emnist as emnist
from jaxota.tasks.images.datasets import fashion_mnist as fashion_mnist
from jaxota.tasks.images.datasets import mnist as mnist
from jaxota.tasks.labelled import classification as classification
from jaxota.tasks.least_squares import regression as regression
from jaxota.tasks.least_squares import synthetic_regression as synthetic_regression
from jaxota.tasks.models import CNN as CNN
from jaxota.tasks.models import MLP as MLP
from jaxota.tasks.models import SoftmaxRegression as SoftmaxRegression
from jaxota.tasks.partitions import dirichlet as dirichlet
from jaxota.tasks.partitions import iid as iid
from jaxota.tasks.partitions import label_skew as label_skew
from jaxota.tasks.partitions import quantity_skew as quantity_skew
from jaxota.tasks.partitions import shards as shards
