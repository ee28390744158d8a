"""Allreduce from Python, Syrtos beside torch.distributed's Gloo, in interleaved rounds.

Both libraries live in the same processes and take turns in a shuffled order, so that a busy machine
slows both alike; the ratio of each round is what counts. Each rank rewrites its buffer before an
operation. Prints a table with the median and the spread (min and max over the rounds).

    python benchmarks/allreduce_bench.py --ranks 2 --rounds 9
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

SIZES = [4, 1 << 10, 1 << 16, 1 << 20, 1 << 24]


def peers(file: str) -> dict[str, Callable[[Any], None]]:
    """Return the in-place sums to compare, by name; torch's only where torch is installed."""
    import syrtos.numpy as hvd

    hvd.init()
    found: dict[str, Callable[[Any], None]] = {
        "syrtos": lambda x: hvd.allreduce_(x, op=hvd.Sum, name=f"x{x.size}")
    }
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        return found
    dist.init_process_group(
        "gloo", init_method=f"file://{file}", rank=hvd.rank(), world_size=hvd.size()
    )
    found["torch gloo"] = lambda x: dist.all_reduce(torch.from_numpy(x))
    return found


def measure(file: str, rounds: int) -> dict[tuple[str, int], list[float]]:
    """Return seconds per operation (median of a round's repeats), per peer and size, per round."""
    import numpy as np

    import syrtos.numpy as hvd

    found = peers(file)
    order = np.random.default_rng(0)  # the same on all ranks
    seconds: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for size in SIZES:
            names = list(found)
            order.shuffle(names)
            for name in names:
                repeats = 50 if size <= 1 << 16 else 10
                times = []
                for _ in range(repeats):
                    x = np.full(size // 4, hvd.rank() + 1, np.float32)
                    hvd.barrier()
                    begin = time.perf_counter()
                    found[name](x)
                    times.append(time.perf_counter() - begin)
                    assert x[0] == hvd.size() * (hvd.size() + 1) / 2
                seconds.setdefault((name, size), []).append(statistics.median(times))
    return seconds


def main() -> None:
    """Run the comparison and print it."""
    import cloudpickle

    import syrtos

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    cloudpickle.register_pickle_by_value(__import__(measure.__module__))
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "store")  # noqa: PTH118
        seconds = syrtos.run(measure, (file, options.rounds), np=options.ranks)[0]
    print(f"| bytes | syrtos | torch gloo | torch / syrtos, {options.ranks} ranks |")
    print("| --- | --- | --- | --- |")
    for size in SIZES:
        ours = seconds["syrtos", size]
        theirs = seconds.get(("torch gloo", size))
        row = f"| {size} | {statistics.median(ours) * 1e6:,.0f} us |"
        if theirs is None:
            print(f"{row} - | torch is not installed |")
            continue
        ratios = sorted(b / a for a, b in zip(ours, theirs, strict=True))
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"{row} {statistics.median(theirs) * 1e6:,.0f} us | {spread} |")


if __name__ == "__main__":
    main()
