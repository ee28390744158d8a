"""The JAX front end: all of `jax_checks` in one launch of two ranks, and what needs its own."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax_checks.errors
import jax_checks.programs
import jax_checks.training
import jax_checks.two_models
import jax_checks.values  # noqa: F401
import pytest
from jax_checks import CHECKS, RANKS, run_checks
from ranks import run_ranks

import syrtos

pytestmark = pytest.mark.jax

LIBRARY = Path(syrtos.__file__).parent / "_jax.so"
EXAMPLE = Path(__file__).parents[2] / "examples" / "jax_digits.py"
#: JAX on the CPU, with a pool of two threads whatever the machine; most time goes into compiling.
ENV = {
    "JAX_PLATFORMS": "cpu",
    "NPROC": "2",
    "XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
}
FULL = os.environ.get("SYRTOS_SOAK") == "1"


def body() -> dict[str, str]:
    import jax_checks.errors
    import jax_checks.programs
    import jax_checks.training
    import jax_checks.two_models
    import jax_checks.values  # noqa: F401

    return run_checks()


@functools.cache
def launch() -> list[dict[str, str]] | Exception:
    try:
        return run_ranks(body, RANKS, timeout=280, env=ENV)
    except Exception as error:  # every check reports it
        return error


@pytest.mark.parametrize("check", CHECKS)
def test_on_two_ranks(check: str) -> None:
    outcome = launch()
    if isinstance(outcome, Exception):
        raise outcome
    failures = {rank: result[check] for rank, result in enumerate(outcome) if check in result}
    assert not failures, "\n".join(f"rank {rank}:\n{text}" for rank, text in failures.items())


def soak() -> None:
    import jax
    from jax_checks.training import many_gradients

    import syrtos.jax as hvd

    jax.config.update("jax_enable_x64", True)
    hvd.init()
    many_gradients(1000)
    hvd.shutdown()


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="a tenth of it is among the checks; ./dev soak runs it")
def test_two_hundred_gradients_a_thousand_times() -> None:
    run_ranks(soak, RANKS, timeout=280, env=ENV)


def fail_on_purpose(folder: str) -> None:
    """Rank 1 is late beyond the limit, and in a second world it dies; rank 0 notes what it sees."""
    import signal
    import time

    import jax
    import jax.numpy as jnp

    import syrtos.jax as hvd

    seen = []
    step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
    for what in ("late", "dead"):
        hvd.init()
        rank = hvd.rank()
        assert step(jnp.ones(2)).tolist() == [2.0, 2.0]
        if rank == 1 and what == "dead":
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 1:
            time.sleep(4)
        try:
            jax.block_until_ready(step(jnp.ones(2)))
        except jax.errors.JaxRuntimeError as error:
            text = str(error)
            who = "rank 1" if "rank 1" in text else text
            seen.append(f"{what}: {text.partition(':')[0]}, {who}")
        Path(folder, f"seen_{rank}").write_text("\n".join(seen))
        if rank == 0 and what == "late":
            time.sleep(6)  # else rank 1 would hear of our shutdown instead
        hvd.shutdown()


def test_a_late_and_a_dead_rank_are_named_inside_programs(tmp_path: Path) -> None:
    limits = {"SYRTOS_STALL_SHUTDOWN_TIME_SECONDS": "2", "SYRTOS_STALL_CHECK_TIME_SECONDS": "1"}
    with pytest.raises(syrtos.errors.SyrtosError, match="rank 1"):
        run_ranks(fail_on_purpose, 2, str(tmp_path), timeout=150, env={**ENV, **limits})
    assert (tmp_path / "seen_0").read_text().splitlines() == [
        "late: DEADLINE_EXCEEDED, rank 1",
        "dead: ABORTED, rank 1",
    ]
    assert (tmp_path / "seen_1").read_text() == "late: DEADLINE_EXCEEDED, rank 1"


def run_python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **ENV, **env},
    )


def test_one_process_without_launcher_and_loading_errors() -> None:
    done = run_python(
        """
import pathlib
import jax, jax.numpy as jnp, numpy as np
import pytest
import syrtos.jax as hvd
from syrtos.jax import _library

step = jax.jit(lambda x: hvd.allreduce(x, op=hvd.Sum))
with pytest.raises(hvd.errors.NotInitializedError, match="init"):
    hvd.allreduce(jnp.ones(2))
with pytest.raises(hvd.errors.NotInitializedError, match="init"):
    step(jnp.ones(2))
hvd.init()
assert step(jnp.ones(2)).tolist() == [1.0, 1.0]
# Without 64 bits, as JAX is by default, everything has the dtype that JAX would give it.
for way in (lambda f: f, jax.jit):
    assert way(hvd.allreduce)(np.array([0.5])).dtype == np.float32
    assert way(hvd.allgather)(np.array([7])).dtype == np.int32
assert hvd.alltoall(jnp.array([1, 2]), splits=[2])[1].dtype == np.int32
assert {hvd.join() for _ in range(20)} == {0}
with pytest.raises(ImportError, match="0.5 and newer, but 0.4.38 is installed.*pip install"):
    _library.check_version("0.4.38")
_library.check_version("0.5.0")
_library.check_version("1.0.0.dev1")
with pytest.raises(ImportError, match="dev build"):
    _library.load(pathlib.Path("/nowhere/_jax.so"))
with pytest.raises(ImportError, match="Reinstall"):
    _library.load(pathlib.Path(pytest.__file__))
print("fine")
"""
    )
    assert done.stdout.endswith("fine\n"), done.stdout + done.stderr


def test_arrays_of_several_devices_are_refused() -> None:
    done = run_python(
        """
import jax, jax.numpy as jnp
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec
import syrtos.jax as hvd

hvd.init()
first, second = jax.devices()
spread = jax.device_put(jnp.ones(4), NamedSharding(Mesh(jax.devices(), "x"), PartitionSpec("x")))
with pytest.raises(ValueError, match="2 devices"):
    hvd.allreduce(spread)
with pytest.raises(ValueError, match="more than 1 device"):
    jax.jit(hvd.allreduce)(spread)
there = jax.device_put(jnp.ones(4), second)
for way in (lambda f: f, jax.jit):
    assert way(hvd.allreduce)(there).devices() == {second}
    assert way(hvd.allgather)(there).devices() == {second}
    assert way(hvd.allreduce)(jnp.ones(2)).devices() == {first}
print("fine")
""",
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
    assert done.stdout.endswith("fine\n"), done.stdout + done.stderr


EXIT = """
import jax, jax.numpy as jnp
import syrtos.jax as hvd

hvd.init()
weights = jnp.eye(600)
step = jax.jit(lambda x: hvd.allreduce(x @ weights @ weights))
failed = step(jnp.ones((600 + hvd.rank(), 600)))  # nobody looks at it
"""


def test_a_failed_program_that_nobody_waits_for_does_not_disturb_the_exit(
    syrtosrun: Any, tmp_path: Path
) -> None:
    script = tmp_path / "exit.py"
    script.write_text(EXIT)
    command = ("-np", str(RANKS), sys.executable, str(script))
    done = syrtosrun(*command, timeout=120, env={**os.environ, **ENV})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_optax_is_only_needed_to_wrap_its_optimizers() -> None:
    done = run_python(
        """
import sys
sys.modules["optax"] = None
import pytest
import syrtos.jax as hvd

with pytest.raises(ImportError, match="pip install optax"):
    hvd.DistributedOptimizer(None)
print("fine")
"""
    )
    assert done.stdout.endswith("fine\n"), done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs binutils")
def test_library_needs_no_symbol_of_xla_and_no_new_libstdcxx() -> None:
    text = subprocess.run(["nm", "-D", LIBRARY], capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^[ 0-9a-f]* [A-Za-z] (\S+)$", text, re.MULTILINE)
    assert "syrtos_jax_collective" in names
    assert not [n for n in names if re.match(r"XLA_|_ZNK?(3xla|4absl|3tsl|6google)", n)]
    versions = [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBCXX_([\d.]+)", text)]
    assert max(versions) <= (3, 4, 29)


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a compiler")
def test_declarations_fit_the_header_of_jaxlib() -> None:
    import jax

    root = Path(__file__).parents[2]
    folders = [f"-I{root / 'cpp'}", f"-I{jax.ffi.include_dir()}"]
    source = Path(__file__).parent / "jax_checks" / "abi.cc"
    done = subprocess.run(
        ["c++", "-std=c++17", "-Wno-invalid-offsetof", "-fsyntax-only", *folders, str(source)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_example_learns_digits_on_two_ranks() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "syrtos.launcher", "-np", "2", sys.executable, str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    accuracy = re.search(r"test accuracy: ([\d.]+)%", done.stdout)
    assert accuracy
    assert float(accuracy[1]) >= 95.0
    assert "weights identical on all ranks: yes" in done.stdout
    assert len(EXAMPLE.read_text().splitlines()) < 100
