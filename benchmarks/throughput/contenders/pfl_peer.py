"""pfl-research: `FederatedAveraging` on its `SimulatedBackend`, a PyTorch model, one process.

A user's dataset is drawn when the user is: K minibatches with replacement, one pass over them.
"""

import importlib.metadata

import contest
import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel


class Regression(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = torch.nn.Parameter(torch.tensor(model, dtype=torch.float32))

    def loss(self, x, y):
        return ((x @ self.model - y) ** 2).mean()

    def metrics(self, x, y):
        return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}


def prepare(work: contest.Work) -> contest.Run:
    torch.manual_seed(0)
    features = torch.tensor(work.features, dtype=torch.float32)
    targets = torch.tensor(work.targets, dtype=torch.float32)
    users, samples = targets.shape

    def of_user(full):
        def dataset(user):
            if full:
                return PyTorchTensorDataset((features[user], targets[user]))
            chosen = torch.randint(samples, (work.steps * work.batch,))
            return PyTorchTensorDataset((features[user, chosen], targets[user, chosen]))

        return dataset

    def run(models, rounds, full):
        sampler = get_user_sampler("minimize_reuse", range(users))
        data = FederatedDataset(of_user(full), sampler)
        settings = NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,  # so in the first round only, which pfl insists on
            train_cohort_size=users,
            val_cohort_size=0,
        )
        local = NNTrainHyperParams(
            local_num_epochs=work.steps if full else 1,
            local_learning_rate=work.step_size,
            local_batch_size=samples if full else work.batch,
        )
        results = []
        for model in models:
            module = Regression(model)
            server = torch.optim.SGD(module.parameters(), 1.0)
            trained = FederatedAveraging().run(
                settings,
                SimulatedBackend(data, data),
                PyTorchModel(module, torch.optim.SGD, server),
                local,
                send_metrics_to_platform=False,
            )
            results.append(trained.pytorch_model.model.detach().numpy().copy())
        return np.stack(results)

    return run


if __name__ == "__main__":
    about = {name: importlib.metadata.version(name) for name in ("pfl", "torch")}
    about |= {"threads": torch.get_num_threads(), "floats": "float32"}
    about["matmul precision"] = torch.get_float32_matmul_precision()
    contest.take_part(prepare, about, trials=1)
