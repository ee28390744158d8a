"""The public names, and what importing them does not do."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import pytest

import syrtos
from syrtos import _basics, _kinds

BASICS = {
    *("init", "shutdown", "is_initialized", "rank", "size", "local_rank", "local_size"),
    *("cross_rank", "cross_size", "is_homogeneous", "mpi_threads_supported", "mpi_enabled"),
    *("mpi_built", "gloo_enabled", "gloo_built", "nccl_built", "ddl_built", "ccl_built"),
    *("cuda_built", "rocm_built", "start_timeline", "stop_timeline", "Average", "Sum", "Adasum"),
    *("Min", "Max", "Product", "ReduceOp", "ProcessSet", "global_process_set"),
    *("add_process_set", "remove_process_set"),
}
NUMPY = {
    *("allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "grouped_allreduce"),
    *("grouped_allreduce_", "grouped_allreduce_async", "grouped_allreduce_async_"),
    *("allgather", "allgather_async", "grouped_allgather", "grouped_allgather_async"),
    *("broadcast", "broadcast_", "broadcast_async", "broadcast_async_"),
    *("alltoall", "alltoall_async", "reducescatter", "reducescatter_async"),
    *("grouped_reducescatter", "grouped_reducescatter_async", "barrier", "join", "poll"),
    *("synchronize", "broadcast_object", "allgather_object", "broadcast_parameters"),
    *("Handle", "Compression", "HorovodInternalError", "errors"),
}


def test_the_basics_are_one_list() -> None:
    assert set(_basics.__all__) == BASICS
    assert set(syrtos.__all__) == BASICS | {"errors", "run", "__version__"}


def test_every_public_name_is_there() -> None:
    for module in (syrtos, importlib.import_module("syrtos.numpy")):
        assert len(set(module.__all__)) == len(module.__all__)
        for name in module.__all__:
            assert getattr(module, name) is not None, name


def test_a_front_end_has_the_basics_as_the_same_objects() -> None:
    import syrtos.numpy as st

    assert set(st.__all__) == BASICS | NUMPY
    for name in _basics.__all__:
        assert getattr(st, name) is getattr(syrtos, name), name


def test_reduce_ops_have_horovods_numbers() -> None:
    names = ["Average", "Sum", "Adasum", "Min", "Max", "Product"]
    assert [getattr(syrtos, name) for name in names] == list(range(6))
    assert [member.name for member in _kinds.ReduceOp] == names


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="allreduce"):
        _ = syrtos.allreduce  # type: ignore[attr-defined]


def test_import_loads_no_framework_and_no_native_code_and_starts_nothing() -> None:
    script = """
import json, sys, threading
before = set(sys.modules)
import syrtos
new = sorted(set(sys.modules) - before)
print(json.dumps({"new": new, "threads": threading.active_count()}))
"""
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    seen = json.loads(result.stdout)
    heavy = {"numpy", "torch", "tensorflow", "keras", "jax", "cloudpickle", "syrtos._core"}
    assert not heavy & set(seen["new"])
    assert not any(name.startswith("syrtos.launcher") for name in seen["new"])
    assert seen["threads"] == 1


def test_the_version_is_that_of_the_core() -> None:
    from syrtos import _core

    assert syrtos.__version__ == _core.build_info()["version"]


def test_what_is_not_in_this_version_says_so() -> None:
    assert syrtos.mpi_built() is False
    assert syrtos.mpi_enabled() is False
    assert syrtos.nccl_built() == 0
    assert syrtos.gloo_built() in (True, False)
    with pytest.raises(ValueError, match="init"):
        syrtos.mpi_threads_supported()


def test_dtype_names_are_numpys() -> None:
    from syrtos import _core

    names = _core.dtype_names()
    assert names[0] == "bool"
    assert names[-1] == "opaque"
    assert names.index("bfloat16") == 10
