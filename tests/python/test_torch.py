"""The PyTorch front end: all of `torch_checks` in one launch of two ranks."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys

import pytest
import torch_checks.batch_norm
import torch_checks.errors
import torch_checks.gradients
import torch_checks.graphs
import torch_checks.state
import torch_checks.values  # noqa: F401
from ranks import run_ranks
from torch_checks import CHECKS, RANKS, run_checks

pytestmark = pytest.mark.torch


def body() -> dict[str, str]:
    import torch_checks.batch_norm
    import torch_checks.errors
    import torch_checks.gradients
    import torch_checks.graphs
    import torch_checks.state
    import torch_checks.values  # noqa: F401

    return run_checks()


@functools.cache
def launch() -> list[dict[str, str]] | Exception:
    try:
        return run_ranks(body, RANKS, timeout=280)
    except Exception as error:  # every check reports it
        return error


@pytest.mark.parametrize("check", CHECKS)
def test_on_two_ranks(check: str) -> None:
    outcome = launch()
    if isinstance(outcome, Exception):
        raise outcome
    failures = {rank: result[check] for rank, result in enumerate(outcome) if check in result}
    assert not failures, "\n".join(f"rank {rank}:\n{text}" for rank, text in failures.items())


def test_one_process_joins_two_hundred_times() -> None:
    import torch

    import syrtos.torch as hvd

    hvd.init()
    try:
        assert {hvd.join() for _ in range(200)} == {0}
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [1.0, 1.0]
    finally:
        hvd.shutdown()


# Horovod's parameters with their defaults, apart from the compression's and the process set's.
SCALES = "prescale_factor=1.0, postscale_factor=1.0"
SIGNATURES = f"""
allreduce(tensor, average=None, name=None, compression, op=None, {SCALES}, process_set)
allreduce_(tensor, average=None, name=None, op=None, {SCALES}, process_set)
allreduce_async(tensor, average=None, name=None, op=None, {SCALES}, process_set)
allreduce_async_(tensor, average=None, name=None, op=None, {SCALES}, process_set)
grouped_allreduce(tensors, average=None, name=None, compression, op=None, {SCALES}, process_set)
grouped_allreduce_(tensors, average=None, name=None, op=None, {SCALES}, process_set)
grouped_allreduce_async(tensors, average=None, name=None, op=None, {SCALES}, process_set)
grouped_allreduce_async_(tensors, average=None, name=None, op=None, {SCALES}, process_set)
sparse_allreduce_async(tensor, name, op, process_set)
allgather(tensor, name=None, process_set)
allgather_async(tensor, name=None, process_set)
grouped_allgather(tensors, name=None, process_set)
grouped_allgather_async(tensors, name=None, process_set)
broadcast(tensor, root_rank, name=None, process_set)
broadcast_(tensor, root_rank, name=None, process_set)
broadcast_async(tensor, root_rank, name=None, process_set)
broadcast_async_(tensor, root_rank, name=None, process_set)
alltoall(tensor, splits=None, name=None, process_set)
alltoall_async(tensor, splits=None, name=None, process_set)
reducescatter(tensor, name=None, compression, op=0, process_set, {SCALES})
reducescatter_async(tensor, name=None, op=0, process_set, {SCALES})
grouped_reducescatter(tensors, name=None, compression, op=0, process_set, {SCALES})
grouped_reducescatter_async(tensors, name=None, op=0, process_set, {SCALES})
join(device=-1)
barrier(process_set)
poll(handle)
synchronize(handle)
broadcast_parameters(params, root_rank)
broadcast_optimizer_state(optimizer, root_rank, model=None)
broadcast_object(obj, root_rank=0, name=None, process_set)
allgather_object(obj, name=None)
SyncBatchNorm(num_features, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)
"""


@pytest.mark.parametrize("line", SIGNATURES.strip().splitlines())
def test_signatures_begin_as_horovods(line: str) -> None:
    import inspect

    import syrtos.torch as hvd

    name, _, rest = line.rstrip(")").partition("(")
    wanted = rest.split(", ")
    ours = list(inspect.signature(getattr(hvd, name)).parameters.values())
    for text, parameter in zip(wanted, ours, strict=False):
        word, equal, default = text.partition("=")
        assert parameter.name == word
        assert parameter.kind == inspect.Parameter.POSITIONAL_OR_KEYWORD
        if equal:
            assert parameter.default == ast.literal_eval(default), parameter
        elif word == "compression":
            assert parameter.default is hvd.Compression.none
        elif word == "process_set":
            assert parameter.default is hvd.global_process_set
    assert all(more.default is not inspect.Parameter.empty for more in ours[len(wanted) :])


def test_every_name_of_horovod_torch_is_there() -> None:
    import syrtos
    import syrtos.torch as hvd

    names = {line.partition("(")[0] for line in SIGNATURES.strip().splitlines()}
    names |= {"Compression", "DistributedOptimizer", "HorovodInternalError", "elastic"}
    for name in names | set(syrtos.__all__) - {"errors", "run", "__version__"}:
        assert hasattr(hvd, name), name
    assert len(set(hvd.__all__)) == len(hvd.__all__)
    assert all(hasattr(hvd, name) for name in hvd.__all__)


def test_the_examples_in_the_docstrings_work() -> None:
    import doctest
    import importlib

    import syrtos.torch as hvd

    hvd.init()
    try:
        for name in (
            *("reductions", "gathers", "scatters", "functions", "parameters"),
            *("optimizer_state", "sparse", "sync_batch_norm"),
        ):
            result = doctest.testmod(importlib.import_module(f"syrtos.torch.{name}"))
            assert result.attempted > 0, name
            assert result.failed == 0, name
    finally:
        hvd.shutdown()


def test_importing_the_front_end_loads_neither_compilers_nor_process_groups() -> None:
    script = "import sys, syrtos.torch; print('torch._dynamo' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.strip() == "False"
