"""Nothing of a job is left five seconds after its end, whatever ended it.

The cases are slow because of the grace that failing jobs get, so all of them run at once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from syrtos.launcher.leftovers import kill_processes_with, processes_with

MARK = "SYRTOS_TEST_ORPHANS"
LIMIT = 5.0  # seconds after which no process may be left
HANG = 60.0  # seconds that a loaded machine may take to end the launcher itself

PRELUDE = """
import os, signal, subprocess, sys, time
rank = int(os.environ["SYRTOS_RANK"])
def deaf():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
def children():
    "A worker, a worker of a worker that leaves its session, and one that has lost its parent."
    deaf()
    if os.fork() == 0:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(120)
            os._exit(0)
        time.sleep(120)
    subprocess.Popen([sys.executable, "-c", "import signal, time; "
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(120)"])
def ready():
    print("ready", flush=True)
def others_are_ready():
    time.sleep(float(os.environ["LAG"]))
"""
#: What rank 1 does, and the launcher's exit code for it.
FAILURES = {
    "raises": ("raise RuntimeError('boom')", 1),
    "exits": ("sys.exit(3)", 3),
    "aborts": ("os.abort()", 128 + signal.SIGABRT),
    "is killed": ("os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
}
#: What rank 0 does meanwhile.
PEERS = {
    "sleeps": "ready(); time.sleep(120)",
    "is deaf": "deaf(); ready(); time.sleep(120)",
    "has children": "children(); ready(); time.sleep(120)",
    "is stopped": "ready(); os.kill(os.getpid(), signal.SIGSTOP); time.sleep(120)",
}


@dataclass
class Ended:
    """How a job ended.

    Attributes
    ----------
    seconds : float
        From the cause to the launcher's end.
    left : list of int
        Processes that were there `LIMIT` seconds after the cause.
    """

    code: int
    out: str
    err: str
    seconds: float
    left: list[int]


class Running:
    """A job of two ranks that has come so far that it can be ended."""

    def __init__(self, rank_0: str, rank_1: str, *options: str, readiness: int = 1) -> None:
        self._mark = uuid.uuid4().hex
        code = f"{PRELUDE}\nif rank == 0:\n    {rank_0}\nelse:\n    {rank_1}\n"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "syrtos.launcher", "-np", "2", *options]
            + [sys.executable, "-c", code],
            env={**os.environ, MARK: self._mark, "LAG": "0.5"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(readiness):
            line = self.process.stdout.readline()
            assert line.endswith(":ready\n"), line + self.process.stderr.read()
        time.sleep(0.3)
        self._begin = time.monotonic()

    def processes(self) -> list[int]:
        """Return the job's processes, the launcher among them."""
        return processes_with(MARK, self._mark)

    def guard(self) -> int:
        """Return the process id of the guard."""
        found = [
            pid
            for pid in self.processes()
            if b"guard.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        assert len(found) == 1
        return found[0]

    def end(self) -> Ended:
        """Wait for the end, then look for what is left."""
        out, err = self.process.communicate(timeout=60)
        seconds = time.monotonic() - self._begin
        while (left := self.processes()) and time.monotonic() - self._begin < LIMIT:
            time.sleep(0.02)
        kill_processes_with(MARK, self._mark)
        return Ended(self.process.returncode, out, err, seconds, left)


def fail(peer: str, failure: str) -> Ended:
    return Running(PEERS[peer], f"others_are_ready(); {FAILURES[failure][0]}").end()


def kill_launcher(peer: str) -> Ended:
    job = Running(PEERS[peer], PEERS["has children"], readiness=2)
    assert len(job.processes()) >= 6
    job.process.kill()
    return job.end()


def kill_guard(peer: str) -> Ended:
    job = Running(PEERS[peer], PEERS["has children"], readiness=2)
    os.kill(job.guard(), signal.SIGKILL)
    return job.end()


def signal_launcher(peer: str, number: int) -> Ended:
    job = Running(PEERS[peer], PEERS["is deaf"], readiness=2)
    job.process.send_signal(number)
    return job.end()


def end_well() -> Ended:
    return Running("children(); ready()", "pass").end()


CASES = {
    **{
        f"rank 1 {failure}, rank 0 {peer}": (fail, peer, failure)
        for failure in FAILURES
        for peer in ("sleeps", "is deaf", "has children")
    },
    "rank 1 exits, rank 0 is stopped": (fail, "is stopped", "exits"),
    **{f"launcher is killed, rank 0 {peer}": (kill_launcher, peer) for peer in PEERS},
    "guard is killed": (kill_guard, "has children"),
    **{
        f"launcher gets {number.name}": (signal_launcher, "has children", number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    },
    "children survive ranks that end well": (end_well,),
}


@pytest.fixture(scope="module")
def ended() -> dict[str, Ended]:
    """Run all cases at once."""
    with ThreadPoolExecutor(len(CASES)) as pool:
        futures = {name: pool.submit(*case) for name, case in CASES.items()}
        return {name: future.result() for name, future in futures.items()}


@pytest.mark.parametrize("name", CASES)
def test_no_process_is_left(ended, name):
    assert ended[name].left == []


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("rank 1")])
def test_the_failing_rank_is_named_and_gives_the_exit_code(ended, name):
    case = ended[name]
    failure = CASES[name][2]
    assert case.code == FAILURES[failure][1]
    assert case.seconds < HANG
    assert "syrtosrun: rank 1 on localhost (pid " in case.err
    expected = {
        "raises": "exited with code 1; stopping the other ranks",
        "exits": "exited with code 3; stopping the other ranks",
        "aborts": "was killed by SIGABRT (6); stopping the other ranks",
        "is killed": "was killed by SIGKILL (9); the kernel does so when memory runs out",
    }
    assert expected[failure] in case.err
    if failure == "raises":
        assert "[1]<stderr>:RuntimeError: boom" in case.err
    assert "also failed" not in case.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_launcher_gives_the_exit_code(ended, number):
    assert ended[f"launcher gets {number.name}"].code == 128 + number


def test_the_end_of_the_guard_is_an_error(ended):
    case = ended["guard is killed"]
    assert case.code == 1
    assert "the guard process of the job ended unexpectedly" in case.err


def test_children_of_ranks_that_ended_well_do_not_fail_the_job(ended):
    case = ended["children survive ranks that end well"]
    assert case.code == 0
    assert case.seconds < HANG
