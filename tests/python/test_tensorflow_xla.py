"""Collectives in programs that TensorFlow's XLA compiles, through both of XLA's interfaces."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import tensorflow_xla_checks.errors
import tensorflow_xla_checks.training
import tensorflow_xla_checks.values  # noqa: F401
from ranks import run_ranks
from tensorflow_xla_checks import CHECKS, RANKS, run_checks

import syrtos

pytestmark = pytest.mark.tensorflow

LIBRARY = Path(syrtos.__file__).parent / "_tensorflow_xla.so"
FULL = os.environ.get("SYRTOS_SOAK") == "1"
#: Threads of each of TensorFlow's pools, and which interface: the older one blocks a thread, and
#: must do with one.
LAUNCHES = {"typed": (2, False), "untyped": (1, True)}


def body(threads: int, untyped: bool) -> dict[str, str]:
    import tensorflow_xla_checks.errors
    import tensorflow_xla_checks.training
    import tensorflow_xla_checks.values  # noqa: F401

    return run_checks(threads, untyped)


@functools.cache
def launch(interface: str) -> list[dict[str, str]] | Exception:
    try:
        return run_ranks(body, RANKS, *LAUNCHES[interface], timeout=280)
    except Exception as error:  # every check reports it
        return error


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("interface", LAUNCHES)
def test_on_two_ranks(interface: str, check: str) -> None:
    outcome = launch(interface)
    if isinstance(outcome, Exception):
        raise outcome
    failures = {rank: result[check] for rank, result in enumerate(outcome) if check in result}
    assert not failures, "\n".join(f"rank {rank}:\n{text}" for rank, text in failures.items())


def soak(threads: int, untyped: bool) -> None:
    import tensorflow_xla_checks
    from tensorflow_xla_checks.training import many_gradients

    import syrtos.tensorflow as hvd

    tensorflow_xla_checks.start(threads, untyped)
    many_gradients(1000)
    hvd.shutdown()


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="a tenth of it is among the checks; ./dev soak runs it")
@pytest.mark.parametrize("untyped", [False, True], ids=["typed", "untyped"])
@pytest.mark.parametrize("threads", [1, 2])
def test_two_hundred_gradients_a_thousand_times(threads: int, untyped: bool) -> None:
    run_ranks(soak, RANKS, threads, untyped, timeout=600)


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs binutils")
def test_library_needs_no_symbol_of_tensorflow_and_no_new_libstdcxx() -> None:
    text = subprocess.run(["nm", "-D", LIBRARY], capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^[ 0-9a-f]* [A-Za-z] (\S+)$", text, re.MULTILINE)
    assert "syrtos_tensorflow_xla_register_typed" in names
    assert not [n for n in names if re.match(r"TF_|XLA_|_ZNK?(3xla|4absl|3tsl|10tensorflow)", n)]
    versions = [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBCXX_([\d.]+)", text)]
    assert max(versions) <= (3, 4, 29)
    assert "condition_variable" not in text


def tensorflow_folder() -> Path:
    spec = importlib.util.find_spec("tensorflow")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a compiler")
def test_declarations_fit_the_header_of_tensorflow() -> None:
    header = tensorflow_folder() / "include" / "xla" / "ffi" / "api" / "c_api.h"
    # TensorFlow 2.18 has the functions of futures in another place, older ones have none.
    if not header.exists() or "XLA_FFI_ThreadPool_NumThreads" not in header.read_text():
        pytest.skip("the structures of this TensorFlow's XLA are older than those declared")
    root = Path(__file__).parents[2]
    folders = [f"-I{root / 'cpp'}", f"-I{tensorflow_folder() / 'include'}"]
    source = Path(__file__).parent / "jax_checks" / "abi.cc"
    done = subprocess.run(
        ["c++", "-std=c++17", "-Wno-invalid-offsetof", "-fsyntax-only", *folders, str(source)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
