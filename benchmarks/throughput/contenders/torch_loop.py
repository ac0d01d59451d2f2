"""PyTorch as it is usually written: a module, autograd and SGD, one trial and user at a time."""

import contest
import numpy as np
import torch


def prepare(work: contest.Work) -> contest.Run:
    torch.manual_seed(0)
    features = torch.tensor(work.features, dtype=torch.float32)
    targets = torch.tensor(work.targets, dtype=torch.float32)
    users, samples, dim = features.shape
    module, loss = torch.nn.Linear(dim, 1, bias=False), torch.nn.MSELoss()
    optimizer = torch.optim.SGD(module.parameters(), lr=work.step_size)

    def train(user, server, full):
        """K steps of a user from the server's model."""
        module.load_state_dict(server)
        for _ in range(work.steps):
            x, y = features[user], targets[user]
            if not full:
                chosen = torch.randint(samples, (work.batch,))
                x, y = x[chosen], y[chosen]
            optimizer.zero_grad()
            loss(module(x).squeeze(-1), y).backward()
            optimizer.step()
        return {name: value.clone() for name, value in module.state_dict().items()}

    def run(models, rounds, full):
        results = []
        for model in models:
            server = {"weight": torch.tensor(model, dtype=torch.float32)[None]}
            for _ in range(rounds):
                local = [train(user, server, full) for user in range(users)]
                server = {name: torch.stack([m[name] for m in local]).mean(0) for name in server}
            results.append(server["weight"][0].numpy())
        return np.stack(results)

    return run


if __name__ == "__main__":
    about = {"torch": torch.__version__, "threads": torch.get_num_threads(), "floats": "float32"}
    about["matmul precision"] = torch.get_float32_matmul_precision()
    contest.take_part(prepare, about, trials=1, rounds=12)
