"""PyTorch, the CNN of images: `torch.func.vmap` over trials and users of a module's gradient.

The module is 3×3 convolutions, each with ReLU and 2×2 max-pooling, then a dense layer. The work's
vectors hold the same parameters in another order, so they are reordered before and after.
"""

import os

import contest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

THREADS = len(os.sched_getaffinity(0))


def build(shapes) -> nn.Module:
    """The module of kernels [9·in, out], …, [pixels, classes], a bias before each."""
    *kernels, dense = shapes[1::2]
    layers = [
        layer
        for rows, out in kernels
        for layer in (nn.Conv2d(rows // 9, out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(*dense))


def order(module, height, width) -> torch.Tensor:
    """Where each number of the module's weights and biases stands in a vector of the work."""
    places, at = [], 0
    for layer in module:
        if not isinstance(layer, (nn.Conv2d, nn.Linear)):
            continue
        bias, weight = layer.bias, layer.weight
        if isinstance(layer, nn.Conv2d):
            last, shape = layer.out_channels, (3, 3, layer.in_channels, layer.out_channels)
            height, width = height // 2, width // 2
        else:
            shape = (height, width, last, layer.out_features)
        kernel = torch.arange(weight.numel()).view(shape).permute(3, 2, 0, 1)
        places += [at + bias.numel() + kernel.flatten(), at + torch.arange(bias.numel())]
        at += bias.numel() + weight.numel()
    return torch.cat(places)


def prepare(work: contest.Work) -> contest.Run:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    users, samples = work.targets.shape
    images = torch.tensor(work.features, dtype=torch.float32).flatten(0, 1)
    images = images[:, None] if images.ndim == 3 else images.movedim(-1, 1)
    labels = torch.tensor(work.targets, dtype=torch.int64).flatten()
    first = (torch.arange(users) * samples)[:, None]
    module = build(work.shapes)
    forward = order(module, *images.shape[2:])
    parameters = dict(module.named_parameters())
    sizes = [value.numel() for value in parameters.values()]

    def loss(parameters, x, y):
        return nn.functional.cross_entropy(functional_call(module, parameters, (x,)), y)

    gradients = vmap(grad(loss))

    @torch.no_grad()
    def run(models, rounds, full):
        trials = len(models)
        models = torch.tensor(models, dtype=torch.float32)[:, forward]
        everything = (first + torch.arange(samples)).expand(trials, -1, -1)
        for _ in range(rounds):
            local = models.repeat_interleave(users, 0)  # [trial·user, d]
            pieces = zip(parameters.items(), local.split(sizes, 1), strict=True)
            pieces = {name: piece.view(-1, *value.shape) for (name, value), piece in pieces}
            for _ in range(work.steps):
                drawn = torch.randint(samples, (trials, users, work.batch)).add_(first)
                chosen = (everything if full else drawn).flatten(0, 1)
                for name, gradient in gradients(pieces, images[chosen], labels[chosen]).items():
                    pieces[name].sub_(gradient, alpha=work.step_size)
            update = local.view(trials, users, -1) - models[:, None]
            models = models + update.mean(1)
            if work.ratio:
                noise = (work.ratio * update.square().sum(-1).amax(1) / users**2).sqrt()
                models += noise[:, None] * torch.randn_like(models)
        return models[:, forward.argsort()].numpy()

    return run


if __name__ == "__main__":
    about = {"torch": torch.__version__, "threads": THREADS, "floats": "float32"}
    about["matmul precision"] = torch.get_float32_matmul_precision()
    contest.take_part(prepare, about, trials=10, rounds=2)
