"""PyTorch, softmax regression batched by hand, its gradient in closed form."""

import os

import contest
import torch

THREADS = len(os.sched_getaffinity(0))


def prepare(work: contest.Work) -> contest.Run:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    features, labels = torch.tensor(work.features), torch.tensor(work.targets, dtype=torch.int64)
    users, samples = labels.shape
    (classes,), (pixels, _) = work.shapes  # bias, then kernel
    one_hot = torch.nn.functional.one_hot(labels, classes).float()
    user = torch.arange(users)[None, :, None]

    @torch.inference_mode()
    def run(models, rounds, full):
        models = torch.tensor(models, dtype=torch.float32)
        trials, batch = len(models), samples if full else work.batch
        everything = torch.arange(samples).expand(trials, users, samples)
        for _ in range(rounds):
            local = models[:, None].repeat(1, users, 1)
            for _ in range(work.steps):
                chosen = everything if full else torch.randint(samples, (trials, users, batch))
                x, y = features[user, chosen], one_hot[user, chosen]
                kernel = local[..., classes:].view(trials, users, pixels, classes)
                logits = x @ kernel + local[..., None, :classes]
                error = (logits.softmax(-1) - y) / batch
                slope = (x.mT @ error).flatten(2)
                local = local - work.step_size * torch.cat([error.sum(2), slope], -1)
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
