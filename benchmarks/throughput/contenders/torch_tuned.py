"""PyTorch, batched and tuned by hand: all users and trials in one array [user, trial, …].

A step multiplies every user's samples by all trials' models at once and picks the residuals drawn:
for a hundred samples that is faster than to gather the minibatches first and multiply then.
`embedding_bag`, a weighted sum of drawn rows, makes the gradient without gathering either.
"""

import os

import contest
import torch

THREADS = len(os.sched_getaffinity(0))


def prepare(work: contest.Work) -> contest.Run:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    x = torch.tensor(work.features, dtype=torch.float32)
    users, samples, dim = x.shape
    transposed = x.mT.contiguous()
    offset = -torch.tensor(work.targets, dtype=torch.float32)[:, None]
    rows = x.view(-1, dim)
    first = (torch.arange(users) * samples)[:, None, None]

    def minibatch(residual, chosen, weights):
        chosen.random_(0, samples)
        weights = torch.gather(residual, 2, chosen, out=weights).view(-1, work.batch)
        chosen = chosen.add_(first).view(-1, work.batch)
        summed = torch.nn.functional.embedding_bag(
            chosen, rows, mode="sum", per_sample_weights=weights
        )
        return summed.view(*residual.shape[:2], dim)

    @torch.inference_mode()
    def run(models, rounds, full):
        models = torch.tensor(models, dtype=torch.float32)
        # Room that all steps share: to allocate so much in each costs as much as to compute.
        residual = x.new_empty(users, len(models), samples)
        weights = x.new_empty(users, len(models), work.batch)
        drawn = torch.empty_like(weights, dtype=torch.int64)
        for _ in range(rounds):
            local = models.repeat(users, 1, 1)
            for _ in range(work.steps):
                torch.baddbmm(offset, local, transposed, out=residual)
                if full:
                    local.baddbmm_(residual, x, alpha=-2 * work.step_size / samples)
                else:
                    gradient = minibatch(residual, drawn, weights)
                    local.add_(gradient, alpha=-2 * work.step_size / work.batch)
            update = local - models
            models = models + update.mean(0)
            if work.ratio:
                energy = update.square().sum(-1).amax(0)
                noise = (work.ratio * energy / users**2).sqrt()
                models += noise[:, None] * torch.randn_like(models)
        return models.numpy()

    return run


if __name__ == "__main__":
    about = {"torch": torch.__version__, "threads": THREADS, "floats": "float32"}
    about["matmul precision"] = torch.get_float32_matmul_precision()
    contest.take_part(prepare, about)
