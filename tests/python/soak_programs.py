"""Seeded random programs of collectives, and what NumPy says must come out of them.

Every rank draws the same program from the same seed; only inputs, the order of named requests and
the timing differ. Results are compared with NumPy bit for bit: additions happen in the order of
ranks, half precision is accumulated in float32 and rounded once.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]
OTHERS = ["bool", "complex64", "complex128"]
KINDS = ["allreduce", "grouped", "allgather", "broadcast", "alltoall", "reducescatter", "barrier"]
OPS = ["Sum", "Average", "Min", "Max", "Product"]
ROWS = [0, 1, 2, 3, 7, 64, 1000, 20000]


@dataclass
class Call:
    """One collective of a program; `thread` makes it, `members` are global ranks."""

    index: int
    kind: str
    name: str | None
    group: int
    members: tuple[int, ...]
    thread: int
    dtypes: list[str]
    tails: list[tuple[int, ...]]
    rows: list[list[int]]  # per part, per rank of the world
    op: str
    root: int


def draw(seed: int, size: int) -> tuple[list[tuple[int, ...]], list[Call]]:
    """Draw a program: groups (the world first) and calls."""
    random = np.random.default_rng(seed)
    groups = [tuple(range(size))]
    while len(groups) < 3 and size > 2 and random.random() < 0.7:
        chosen = random.choice(size, size=int(random.integers(1, size)), replace=False)
        members = tuple(sorted(int(r) for r in chosen))
        if members not in groups:
            groups.append(members)
    threads = int(random.integers(1, 4))
    calls = []
    for index in range(int(random.integers(6, 16))):
        group = int(random.integers(len(groups)))
        calls.append(_draw_call(random, index, group, groups[group], size, threads))
    return groups, calls


def _draw_call(random: Any, index: int, group: int, members: Any, size: int, threads: int) -> Call:
    kind = str(random.choice(KINDS))
    unnamed = random.random() < 0.3
    parts = int(random.integers(2, 6)) if kind == "grouped" else 1
    dtypes = [str(random.choice(INTEGERS + FLOATS + OTHERS)) for _ in range(parts)]
    op = str(random.choice(OPS))
    if kind in ("allreduce", "grouped", "reducescatter"):
        dtypes = [_reducible(dtype, op) for dtype in dtypes]
    ragged = kind == "allgather"
    rows = []
    for _ in range(parts):
        same = int(random.choice(ROWS))
        rows.append([int(random.choice(ROWS[:6])) if ragged else same for _ in range(size)])
    if kind == "alltoall":
        rows = [[int(random.integers(0, 5)) * len(members) for _ in range(size)]]
    tails = [tuple(int(d) for d in random.integers(0, 4, size=random.integers(0, 3))) for _ in rows]
    root = int(random.choice(members))
    # Unnamed requests match by the order of calls, so one thread makes them all.
    thread = 0 if unnamed else int(random.integers(threads))
    name = None if unnamed else f"call{index}"
    return Call(index, kind, name, group, members, thread, dtypes, tails, rows, op, root)


def _reducible(dtype: str, op: str) -> str:
    if dtype == "bool" and op == "Average":
        return "int32"
    if dtype.startswith("complex") and op in ("Min", "Max"):
        return "float32"
    return dtype


def value(seed: int, call: Call, part: int, rank: int) -> Any:
    """Return what `rank` brings to a part."""
    random = np.random.default_rng([seed, call.index, part, rank])
    shape = (call.rows[part][rank], *call.tails[part])
    dtype = np.dtype(call.dtypes[part])
    if dtype.kind == "b":
        return random.random(shape) < 0.5
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return random.integers(info.min, info.max, size=shape, dtype=dtype, endpoint=True)
    numbers = random.standard_normal(shape)
    if dtype.kind == "c":
        return (numbers + 1j * random.standard_normal(shape)).astype(dtype)
    return numbers.astype(dtype)


def reduced(arrays: list[Any], op: str) -> Any:
    """Combine in the order given, as documented."""
    dtype = arrays[0].dtype
    if op in ("Min", "Max"):
        return (np.minimum if op == "Min" else np.maximum).reduce(arrays)
    if op == "Average" and dtype.kind in "iu":
        total = sum(a.astype(object) for a in arrays)
        means = [int(abs(t) // len(arrays)) * (1 if t >= 0 else -1) for t in np.ravel(total)]
        return np.array(means, dtype=object).reshape(np.shape(total)).astype(dtype)
    wide = np.float32 if dtype == np.float16 else dtype
    with np.errstate(all="ignore"):
        out = arrays[0].astype(wide)
        for a in arrays[1:]:
            out = out * a.astype(wide) if op == "Product" else out + a.astype(wide)
        if (
            op == "Average" and dtype.kind == "c"
        ):  # each part divided by the count, not complex division
            out = (out.view(out.real.dtype) / out.real.dtype.type(len(arrays))).view(dtype)
        elif op == "Average":
            out = out / out.dtype.type(len(arrays))
        return out.astype(dtype)


def expected(seed: int, call: Call, rank: int) -> list[Any]:
    """Return what must come out on `rank`, per part."""
    results = []
    place, n = call.members.index(rank), len(call.members)
    for part in range(len(call.dtypes)):
        inputs = [value(seed, call, part, member) for member in call.members]
        if call.kind in ("allreduce", "grouped"):
            results.append(reduced(inputs, call.op))
        elif call.kind == "reducescatter":
            results.append(np.array_split(reduced(inputs, call.op), n)[place])
        elif call.kind == "allgather":
            results.append(np.concatenate(inputs))
        elif call.kind == "broadcast":
            results.append(value(seed, call, part, call.root))
        elif call.kind == "alltoall":
            results.append(np.concatenate([np.split(a, n)[place] for a in inputs]))
    return results


def submit(hvd: Any, seed: int, call: Call, rank: int, process_set: Any) -> Any:
    """Start a call; the handle."""
    inputs = [value(seed, call, part, rank) for part in range(len(call.dtypes))]
    op = getattr(hvd, call.op)
    where = {"name": call.name, "process_set": process_set}
    if call.kind == "allreduce":
        return hvd.allreduce_async(inputs[0], op=op, **where)
    if call.kind == "grouped":
        return hvd.grouped_allreduce_async(inputs, op=op, **where)
    if call.kind == "reducescatter":
        return hvd.reducescatter_async(inputs[0], op=op, **where)
    if call.kind == "allgather":
        return hvd.allgather_async(inputs[0], **where)
    if call.kind == "broadcast":
        return hvd.broadcast_async(inputs[0], call.root, **where)
    return hvd.alltoall_async(inputs[0], **where)


def _equal(want: Any, have: Any, op: str) -> bool:
    if want.dtype != have.dtype or want.shape != have.shape:
        return False
    if want.dtype.kind == "c" and op == "Product":
        # NumPy's vector loops may fuse the multiplications of complex numbers; ours never do.
        return bool(np.allclose(want, have, rtol=1e-5, atol=1e-6, equal_nan=True))
    return bool(np.array_equal(want, have, equal_nan=want.dtype.kind in "fc"))


def run_thread(
    hvd: Any, seed: int, calls: list[Call], rank: int, sets: Any, wrong: list[str]
) -> None:
    """Make one thread's calls: unnamed ones in order, named ones shuffled among them."""
    random = np.random.default_rng([seed, rank, calls[0].thread if calls else 0])
    order = [calls[i] for i in random.permutation(len(calls))]
    slots = [i for i, call in enumerate(order) if call.name is None]
    for slot, call in zip(
        slots, sorted((order[i] for i in slots), key=lambda c: c.index), strict=True
    ):
        order[slot] = call
    handles = []
    for call in order:
        if random.random() < 0.1:
            time.sleep(random.random() * 0.002)
        if call.kind == "barrier":
            # A barrier blocks: all that this thread owes the others must be on its way before.
            continue
        handles.append((call, submit(hvd, seed, call, rank, sets[call.group])))
    for call, handle in handles:
        got = hvd.synchronize(handle)
        got = got if isinstance(got, list | tuple) else [got]
        for want, have in zip(expected(seed, call, rank), got, strict=True):
            if not _equal(want, have, call.op):
                wrong.append(f"seed {seed} rank {rank}: {call} gave {have!r}, expected {want!r}")


def run_programs(seeds: list[int]) -> tuple[int, list[str]]:
    """Run the programs of these seeds on this rank; how many collectives, and what was wrong."""
    import syrtos.numpy as hvd

    hvd.init(process_sets="dynamic")
    rank, size = hvd.rank(), hvd.size()
    wrong: list[str] = []
    done = 0
    for seed in seeds:
        groups, calls = draw(seed, size)
        sets = [hvd.global_process_set, *[hvd.add_process_set(list(g)) for g in groups[1:]]]
        mine = [call for call in calls if rank in call.members]
        workers = [
            threading.Thread(
                target=run_thread,
                args=(hvd, seed, [c for c in mine if c.thread == t], rank, sets, wrong),
            )
            for t in range(3)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        for call in mine:
            if call.kind == "barrier":
                hvd.barrier(process_set=sets[call.group])
        for process_set in sets[1:]:
            hvd.remove_process_set(process_set)
        done += len(mine)
    hvd.shutdown()
    return done, wrong
