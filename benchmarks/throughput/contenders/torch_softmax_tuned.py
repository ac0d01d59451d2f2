"""PyTorch, softmax regression batched and tuned by hand, its gradient in closed form.

Kernels stand as [trial·user, class, pixel] and logits as [trial·user, class, sample], which PyTorch
multiplies faster than any other order of these.
"""

import os

import contest
import torch
from torch.nn.functional import embedding

THREADS = len(os.sched_getaffinity(0))
FLOATS = 2**21  # of minibatches at once: more of them leave the cache


def prepare(work: contest.Work) -> contest.Run:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    users, samples = work.targets.shape
    rows = torch.tensor(work.features, dtype=torch.float32).reshape(users * samples, -1)
    first = (torch.arange(users) * samples)[:, None]
    (classes,), (pixels, _) = work.shapes  # bias, then kernel
    labels = torch.tensor(work.targets, dtype=torch.int64).reshape(-1)
    at_once = max(1, FLOATS // (users * work.batch * pixels))  # trials
    one_hot = torch.nn.functional.one_hot(labels, classes).float()

    def step(bias, kernel, chosen, room):
        """One step of all models [model, …] on the samples `chosen` [model, sample]."""
        size = chosen.shape[1]
        x = torch.index_select(rows, 0, chosen.view(-1), out=room).view(*chosen.shape, -1)
        error = torch.baddbmm(bias, kernel, x.mT).softmax(1)  # [model, class, sample]
        error -= embedding(chosen, one_hot).mT
        bias.sub_(error.sum(2, keepdim=True), alpha=work.step_size / size)
        kernel.baddbmm_(error, x, alpha=-work.step_size / size)

    @torch.inference_mode()
    def some(models, rounds, full):
        trials = len(models)
        bias, kernel = models[:, :classes, None], models[:, classes:].view(-1, pixels, classes).mT
        models = torch.cat([kernel, bias], 2)  # [trial, class, pixel + 1], the bias last
        room = rows.new_empty(trials * users * (samples if full else work.batch), pixels)
        everything = (first + torch.arange(samples)).repeat(trials, 1)
        for _ in range(rounds):
            kernel = models[..., :-1].repeat_interleave(users, 0)
            bias = models[..., -1:].repeat_interleave(users, 0)
            for _ in range(work.steps):
                drawn = torch.randint(samples, (trials, users, work.batch)).add_(first)
                step(bias, kernel, everything if full else drawn.view(-1, work.batch), room)
            local = torch.cat([kernel, bias], 2).view(trials, users, classes, -1)
            average = local.mean(1)
            if work.ratio:
                energy = (local - models[:, None]).square().sum((2, 3)).amax(1)
                noise = (work.ratio * energy / users**2).sqrt()
                average += noise[:, None, None] * torch.randn_like(average)
            models = average
        return torch.cat([models[..., -1], models[..., :-1].mT.flatten(1)], 1)

    def run(models, rounds, full):
        blocks = torch.tensor(models, dtype=torch.float32).split(at_once)
        return torch.cat([some(block, rounds, full) for block in blocks]).numpy()

    return run


if __name__ == "__main__":
    about = {"torch": torch.__version__, "threads": THREADS, "floats": "float32"}
    about["matmul precision"] = torch.get_float32_matmul_precision()
    contest.take_part(prepare, about)
