"""What one grouped allreduce of small tensors costs inside TensorFlow's and JAX's programs.

The program adds something to each of some tensors of 64 floats, reduces them by one call, and
multiplies the results; it is compared with the same program without the call: as a graph of
TensorFlow, as a program of its XLA, and under jax.jit. The two run in the same processes and take
turns in a shuffled order. A round is the quickest of some calls, since whatever else runs on the
machine only adds to them; its ratio is to the program without the call of the same round. Prints
the median of the rounds and their spread (min to max), and the same for the CPU time of rank 0, on
all its threads, which does not count the wait for other ranks and for a free core.

    python benchmarks/graph_call_bench.py --ranks 2 --rounds 9
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

COUNTS = (1, 50, 200)
ELEMENTS = 64


def tensorflow_programs(count: int) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Return programs without and with the call, by what runs them."""
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    tensors = [tf.fill([ELEMENTS], float(i)) for i in range(count)]

    def without(tensors: list[Any]) -> list[Any]:
        return [2.0 * (tensor + 1.0) for tensor in tensors]

    def with_call(tensors: list[Any]) -> list[Any]:
        reduced = hvd.grouped_allreduce([tensor + 1.0 for tensor in tensors], op=hvd.Sum)
        return [2.0 * tensor for tensor in reduced]

    def runs(function: Any, jit_compile: bool) -> Callable[[], Any]:
        program = tf.function(function, jit_compile=jit_compile, autograph=False)
        return lambda: program(tensors)[0].numpy()

    return {
        "TensorFlow graph": (runs(without, False), runs(with_call, False)),
        "TensorFlow XLA": (runs(without, True), runs(with_call, True)),
    }


def jax_programs(count: int) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Return programs without and with the call, by what runs them."""
    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    arrays = [jnp.full(ELEMENTS, float(i)) for i in range(count)]

    @jax.jit
    def without(arrays: list[Any]) -> list[Any]:
        return [2.0 * (array + 1.0) for array in arrays]

    @jax.jit
    def with_call(arrays: list[Any]) -> list[Any]:
        reduced = hvd.grouped_allreduce([array + 1.0 for array in arrays], op=hvd.Sum)
        return [2.0 * array for array in reduced]

    def runs(program: Any) -> Callable[[], Any]:
        return lambda: jax.block_until_ready(program(arrays))

    return {"jax.jit": (runs(without), runs(with_call))}


def measure(framework: str, rounds: int, calls: int) -> dict[tuple[str, int], list[Any]]:
    """Return, by program and count, seconds without and with the call, per round.

    Each are four numbers: without, with, and the CPU time of both.
    """
    import numpy as np

    import syrtos.numpy as hvd

    programs_of = {"tensorflow": tensorflow_programs, "jax": jax_programs}[framework]
    hvd.init()
    order = np.random.default_rng(0)  # the same on all ranks
    seconds: dict[tuple[str, int], list[Any]] = {}
    for count in COUNTS:
        for name, pair in programs_of(count).items():
            for number in range(rounds + 1):  # the first round warms up
                times = [0.0] * 4
                for which in order.permutation(2):
                    samples, work = [], 0.0
                    for _ in range(calls):
                        hvd.barrier()
                        begin, busy = time.perf_counter(), time.process_time()
                        pair[which]()
                        samples.append(time.perf_counter() - begin)
                        work += time.process_time() - busy
                    times[which], times[2 + which] = min(samples), work / calls
                if number:
                    seconds.setdefault((name, count), []).append(times)
    hvd.shutdown()
    return seconds


def compared(without: list[float], with_call: list[float]) -> str:
    """Return three columns: microseconds without and with the call, and their ratio."""
    ratios = sorted(b / a for a, b in zip(without, with_call, strict=True))
    medians = " | ".join(f"{1e6 * statistics.median(times):.0f}" for times in (without, with_call))
    return f"{medians} | {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def main() -> None:
    """Run the comparison and print it."""
    import cloudpickle

    import syrtos

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--frameworks", nargs="+", default=["tensorflow", "jax"])
    options = parser.parse_args()
    cloudpickle.register_pickle_by_value(__import__(measure.__module__))
    print(
        f"| program, {options.ranks} ranks | tensors | us | with | ratio | CPU us | with | ratio |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for framework in options.frameworks:
        arguments = (framework, options.rounds, options.calls)
        seconds = syrtos.run(measure, arguments, np=options.ranks)[0]
        for (name, count), rounds in seconds.items():
            columns = list(zip(*rounds, strict=True))
            shown = " | ".join(compared(*columns[i : i + 2]) for i in (0, 2))
            print(f"| {name} | {count} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
