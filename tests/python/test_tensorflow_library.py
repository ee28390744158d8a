"""How the op library is loaded, and what it needs."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import run_ranks

import syrtos

pytestmark = pytest.mark.tensorflow

LIBRARY = Path(syrtos.__file__).parent / "_tensorflow.so"


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs binutils")
@pytest.mark.parametrize("name", ["_tensorflow.so", "_tensorflow_horovod.so"])
def test_library_needs_no_symbol_of_tensorflow_and_no_new_libstdcxx(name: str) -> None:
    command = ["nm", "-D", LIBRARY.with_name(name)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = re.findall(r"^[ 0-9a-f]* [A-Za-z] (\S+)$", text, re.MULTILINE)
    assert names
    foreign = [n for n in names if re.match(r"TF_|TFE_|_ZNK?(10tensorflow|4absl|6google)", n)]
    assert not foreign
    versions = [tuple(map(int, v.split("."))) for v in re.findall(r"GLIBCXX_([\d.]+)", text)]
    assert max(versions) <= (3, 4, 29)
    assert "condition_variable" not in text


def test_one_process_without_launcher_and_loading_errors() -> None:
    done = run_python(
        """
import logging
import pathlib
import pytest
import tensorflow as tf
import syrtos.tensorflow as hvd
from syrtos.tensorflow import _library

with pytest.raises(tf.errors.FailedPreconditionError, match="init"):
    hvd.allreduce([1.0])
hvd.init()
assert hvd.allreduce([1.0, 2.0]).numpy().tolist() == [1.0, 2.0]
assert hvd.allgather([[1.0]]).numpy().tolist() == [[1.0]]
assert _library.load() is not None  # again: the same module
with pytest.raises(ImportError, match="2.16 to 2.21, but 2.15.1 is installed.*pip install"):
    _library.check_version("2.15.1")
warnings = []
logging.getLogger("syrtos").addFilter(lambda record: warnings.append(record.getMessage()))
_library.check_version("2.21.0")
assert not warnings
_library.check_version("2.22.0-rc1")
assert "2.16 to 2.21, and 2.22.0-rc1" in warnings[0]
with pytest.raises(ImportError, match="dev build"):
    _library.load(pathlib.Path("/nowhere/_tensorflow.so"))
with pytest.raises(ImportError, match="Reinstall"):
    _library.load(pathlib.Path(__file__ if "__file__" in globals() else pytest.__file__))
print("fine")
"""
    )
    assert done.stdout.endswith("fine\n"), done.stdout + done.stderr


def test_a_library_loaded_before_tensorflow_is_refused() -> None:
    done = run_python(f"import ctypes; ctypes.CDLL({str(LIBRARY)!r}); import syrtos.tensorflow")
    assert done.returncode != 0
    assert "ImportError: syrtos.tensorflow: the ops of" in done.stderr
    assert "import tensorflow first" in done.stderr


def test_installed_tensorflow_is_within_the_tested_range() -> None:
    try:
        version = importlib.metadata.version("tensorflow")
    except importlib.metadata.PackageNotFoundError:
        version = importlib.metadata.version("tensorflow-cpu")
    assert (2, 16) <= tuple(map(int, version.split(".")[:2])) <= (2, 21)


def fail_on_purpose(folder: str) -> None:
    """Rank 1 is late beyond the limit, and in a second world it dies; rank 0 notes what it sees."""
    import os
    import signal
    import time

    import tensorflow as tf

    import syrtos.tensorflow as hvd

    seen = []
    step = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum), autograph=False)
    for what in ("late", "dead"):
        hvd.init()
        rank = hvd.rank()
        assert step(tf.ones([2])).numpy().tolist() == [2.0, 2.0]
        if rank == 1 and what == "dead":
            os.kill(os.getpid(), signal.SIGKILL)
        if rank == 1:
            time.sleep(4)
        start = time.monotonic()
        try:
            step(tf.ones([2]))
        except tf.errors.OpError as error:
            text = "rank 1" if "rank 1" in error.message else error.message
            seen.append(f"{what}: {type(error).__name__}, {text}")
        assert time.monotonic() - start < 60  # against hanging only
        Path(folder, f"seen_{rank}").write_text("\n".join(seen))
        if rank == 0 and what == "late":
            time.sleep(6)  # else rank 1 would hear of our shutdown instead
        hvd.shutdown()


def test_a_late_and_a_dead_rank_have_their_own_error_classes(tmp_path: Path) -> None:
    env = {"SYRTOS_STALL_SHUTDOWN_TIME_SECONDS": "2", "SYRTOS_STALL_CHECK_TIME_SECONDS": "1"}
    with pytest.raises(syrtos.errors.SyrtosError, match="rank 1"):
        run_ranks(fail_on_purpose, 2, str(tmp_path), timeout=150, env=env)
    assert (tmp_path / "seen_0").read_text().splitlines() == [
        "late: DeadlineExceededError, rank 1",
        "dead: AbortedError, rank 1",
    ]
    assert (tmp_path / "seen_1").read_text() == "late: DeadlineExceededError, rank 1"
