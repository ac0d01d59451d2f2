"""What is learned, and who holds which data.

A task offers `users`, `dim` and `problem(trial)`. The problem is what the engine computes with:
`init(key)` [d], `gradient(model, user, samples)` [d], `full_gradient(model, user)` [d],
`score(model)`, `head()` (the first fifth of every user's samples, for calibration), `counts`
[user] and `strong_convexity`. `floats_per_trial(batch)` bounds what a trial's data take in memory.
"""

from jaxota.tasks.regression import regression as regression
from jaxota.tasks.regression import synthetic_regression as synthetic_regression
