"""A PyTorch training step on several ranks: Syrtos beside DistributedDataParallel with Gloo.

All variants live in the same processes and take turns in a shuffled order: a step without any
communication, `DistributedOptimizer`, `syrtos.torch.wrap`, and DDP. A round is the median of some
steps, its ratio is to the step without communication of the same round. Prints, for each model, the
median of the rounds and their spread (min to max).

    python benchmarks/torch_step_bench.py --ranks 2 --rounds 9
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

ALONE = "no communication"
BATCH = 64


def mlp() -> Any:
    """Return a perceptron of 1.2 million parameters."""
    from torch import nn

    return nn.Sequential(
        *(nn.Linear(784, 1024), nn.ReLU()), *(nn.Linear(1024, 384), nn.ReLU()), nn.Linear(384, 10)
    )


def convnet() -> Any:
    """Return a small convolutional net of 93 thousand parameters."""
    from torch import nn

    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten()),
        *(nn.Linear(1024, 36), nn.ReLU(), nn.Linear(36, 10)),
    )


def variants(make: Callable[[], Any]) -> dict[str, Callable[[Any, Any], None]]:
    """Return one training step for each way to train the model that `make` makes."""
    import torch
    from torch import nn

    import syrtos.torch as hvd

    def stepper(model: Any, optimizer: Any) -> Callable[[Any, Any], None]:
        def step(x: Any, y: Any) -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

        return step

    def sgd(model: Any) -> Any:
        return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    models = [make() for _ in range(4)]
    hvd.broadcast_parameters(models[1].state_dict(), root_rank=0)
    wrapped, ddp = hvd.wrap(models[2]), nn.parallel.DistributedDataParallel(models[3])
    ours = hvd.DistributedOptimizer(sgd(models[1]), named_parameters=models[1].named_parameters())
    return {
        ALONE: stepper(models[0], sgd(models[0])),
        "DistributedOptimizer": stepper(models[1], ours),
        "syrtos.torch.wrap": stepper(wrapped, sgd(wrapped)),
        "torch DDP, Gloo": stepper(ddp, sgd(ddp)),
    }


def measure(file: str, rounds: int, steps: int) -> dict[tuple[str, str], list[float]]:
    """Return seconds per step (median of a round's steps), per model and variant, per round."""
    import numpy as np
    import torch
    import torch.distributed as dist

    import syrtos.torch as hvd

    torch.set_num_threads(1)
    hvd.init()
    dist.init_process_group(
        "gloo", init_method=f"file://{file}", rank=hvd.rank(), world_size=hvd.size()
    )
    order = np.random.default_rng(0)  # the same on all ranks
    x, y = torch.randn(BATCH, 784), torch.randint(0, 10, (BATCH,))
    seconds: dict[tuple[str, str], list[float]] = {}
    for model, make in (("MLP, 1.2 M", mlp), ("convnet, 93 k", convnet)):
        found = variants(make)
        for _ in range(rounds + 1):  # the first round warms up
            names = list(found)
            order.shuffle(names)
            for name in names:
                times = []
                for _ in range(steps):
                    hvd.barrier()
                    begin = time.perf_counter()
                    found[name](x, y)
                    times.append(time.perf_counter() - begin)
                seconds.setdefault((model, name), []).append(statistics.median(times))
    dist.destroy_process_group()
    return {key: times[1:] for key, times in seconds.items()}


def main() -> None:
    """Run the comparison and print it."""
    import cloudpickle

    import syrtos

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    cloudpickle.register_pickle_by_value(__import__(measure.__module__))
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "store")  # noqa: PTH118
        seconds = syrtos.run(measure, (file, options.rounds, options.steps), np=options.ranks)[0]
    print(f"| model, {options.ranks} ranks | variant | ms a step | times the step alone |")
    print("| --- | --- | --- | --- |")
    for (model, name), times in sorted(seconds.items()):
        alone = seconds[model, ALONE]
        ratios = sorted(a / b for a, b in zip(times, alone, strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"| {model} | {name} | {statistics.median(times) * 1e3:.2f} | {spread} |")


if __name__ == "__main__":
    main()
