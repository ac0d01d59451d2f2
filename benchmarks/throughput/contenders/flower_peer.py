"""Flower: its simulation runtime on Ray, `FedAvg` and PyTorch clients, one Ray actor per core.

One simulation serves all runs, in a thread of its own, so Ray's start of some seconds is not timed.
Flower keeps the id of its run for the whole process, so `prepare` can be called only once.
"""

import importlib.metadata
import logging
import os
import queue
import threading

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import contest
import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

logging.getLogger("flwr").setLevel(logging.ERROR)
CORES = len(os.sched_getaffinity(0))
JOBS = queue.Queue()  # (model, rounds, full) for the server, or None at the end


def client(work: contest.Work) -> ClientApp:
    features = torch.tensor(work.features, dtype=torch.float32)
    targets = torch.tensor(work.targets, dtype=torch.float32)
    samples, dim = features.shape[1:]
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)  # as Ray's actors share the cores
        full = message.content["config"]["full"]
        user = context.node_config["partition-id"]
        module, loss = torch.nn.Linear(dim, 1, bias=False), torch.nn.MSELoss()
        module.load_state_dict(message.content["arrays"].to_torch_state_dict())
        optimizer = torch.optim.SGD(module.parameters(), lr=work.step_size)
        for _ in range(work.steps):
            x, y = features[user], targets[user]
            if not full:
                chosen = torch.randint(samples, (work.batch,))
                x, y = x[chosen], y[chosen]
            optimizer.zero_grad()
            loss(module(x).squeeze(-1), y).backward()
            optimizer.step()
        arrays, metrics = ArrayRecord(module.state_dict()), MetricRecord({"num-examples": samples})
        content = RecordDict({"arrays": arrays, "metrics": metrics})
        return Message(content=content, reply_to=message)

    return app


class Everyone(FedAvg):
    """FedAvg of all users: by itself it begins with the nodes at hand, and drops failed replies."""

    def __init__(self, users: int) -> None:
        super().__init__(fraction_evaluate=0.0, min_train_nodes=users, min_available_nodes=users)

    def aggregate_train(self, server_round, replies):
        replies = [reply for reply in replies if not reply.has_error()]
        if len(replies) != self.min_train_nodes:
            raise RuntimeError(f"{len(replies)} of {self.min_train_nodes} users replied")
        return super().aggregate_train(server_round, replies)


def server(users: int, results: queue.Queue) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        for model, rounds, full in iter(JOBS.get, None):
            arrays = ArrayRecord({"weight": torch.tensor(model, dtype=torch.float32)[None]})
            config = ConfigRecord({"full": full})
            result = Everyone(users).start(grid, arrays, rounds, train_config=config)
            results.put(result.arrays.to_torch_state_dict()["weight"][0].numpy())

    return app


def prepare(work: contest.Work) -> contest.Run:
    users, results = len(work.features), queue.Queue()
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}

    def simulate():
        try:
            run_simulation(server(users, results), client(work), users, backend_config=resources)
        except Exception as error:
            results.put(error)

    threading.Thread(target=simulate).start()

    def run(models, rounds, full):
        for model in models:
            JOBS.put((model, rounds, full))
        made = []
        for _ in models:
            made.append(results.get(timeout=300))
            if isinstance(made[-1], Exception):
                raise made[-1]
        return np.stack(made)

    return run


if __name__ == "__main__":
    about = {name: importlib.metadata.version(name) for name in ("flwr", "ray", "torch")}
    about |= {"threads": CORES, "floats": "float32"}
    about["matmul precision"] = torch.get_float32_matmul_precision()
    try:
        contest.take_part(prepare, about, trials=1, rounds=6)
    finally:
        JOBS.put(None)
