"""PyTorch, batched by hand: all users and trials in one array [trial, user, …], rows gathered."""

import os

import contest
import torch

THREADS = len(os.sched_getaffinity(0))


def prepare(work: contest.Work) -> contest.Run:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    features, targets = torch.tensor(work.features), torch.tensor(work.targets)
    users, samples, dim = features.shape
    table = torch.cat([features, targets[..., None]], -1).view(-1, dim + 1)
    first = (torch.arange(users) * samples)[None, :, None]

    @torch.inference_mode()
    def run(models, rounds, full):
        models = torch.tensor(models, dtype=torch.float32)
        trials, batch = len(models), samples if full else work.batch
        everything = torch.arange(samples).expand(trials, users, samples)
        for _ in range(rounds):
            local = models[:, None].repeat(1, users, 1)
            for _ in range(work.steps):
                chosen = everything if full else torch.randint(samples, (trials, users, batch))
                rows = table[first + chosen]
                x, y = rows[..., :dim], rows[..., dim]
                residual = torch.einsum("tubd,tud->tub", x, local) - y
                gradient = torch.einsum("tub,tubd->tud", residual, x)
                local = local - 2 * work.step_size / batch * gradient
            update = local - models[:, None]
            models = models + update.mean(1)
            if work.ratio:
                energy = update.square().sum(-1).amax(1)
                noise = (work.ratio * energy / users**2).sqrt()
                models = models + noise[:, None] * torch.randn_like(models)
        return models.numpy()

    return run


if __name__ == "__main__":
    about = {"torch": torch.__version__, "threads": THREADS, "floats": "float32"}
    about["matmul precision"] = torch.get_float32_matmul_precision()
    contest.take_part(prepare, about)
