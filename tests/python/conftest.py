"""What all Python tests share: ranks, and the promise that no process is left behind."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ranks import run_ranks

from syrtos.launcher.leftovers import kill_processes_with, processes_with

MARK = "SYRTOS_TEST_MARK"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the body of a test marked ``ranks(n, timeout=..., env=...)`` on n processes."""
    marker = pyfuncitem.get_closest_marker("ranks")
    if marker is None:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    run_ranks(pyfuncitem.obj, *marker.args, **marker.kwargs, **arguments)
    return True


@pytest.fixture(autouse=True)
def no_process_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Fail a test that leaves a process behind; its value is the variable that marks them."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    yield f"{MARK}={mark}"
    give_up = time.monotonic() + 0.5
    while (left := processes_with(MARK, mark)) and time.monotonic() < give_up:
        time.sleep(0.01)
    if left:
        names = [f"{pid} ({_command(pid)})" for pid in left]
        kill_processes_with(MARK, mark)
        pytest.fail(f"processes left behind: {', '.join(names)}")


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return "gone"


class Syrtosrun:
    """Starts the launcher as a user does, in a process of its own."""

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start it; `options` are those of Popen."""
        command = [sys.executable, "-m", "syrtos.launcher", *arguments]
        return subprocess.Popen(
            command, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        )

    def __call__(
        self, *arguments: str, timeout: float = 30.0, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end and return exit code and output."""
        with self.start(*arguments, **options) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except BaseException:
                process.kill()
                raise
        texts = [(text or b"").decode(errors="backslashreplace") for text in (out, err)]
        return subprocess.CompletedProcess(process.args, process.returncode, *texts)


@pytest.fixture(scope="session")
def syrtosrun() -> Syrtosrun:
    """Return what runs ``syrtosrun``."""
    return Syrtosrun()
