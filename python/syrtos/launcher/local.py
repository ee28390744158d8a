"""Starts ranks on this machine, below a guard process (see guard.py)."""

from __future__ import annotations

import array
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from syrtos.launcher.leftovers import kill_processes_with
from syrtos.launcher.loop import Loop
from syrtos.launcher.starter import STDERR, STDOUT, Listener, RankCommand, Starter

GUARD = str(Path(__file__).with_name("guard.py"))
CHUNK = 1 << 16
#: How long the guard may take beyond the last deadline before it is given up, in seconds.
GUARD_PATIENCE = 6.0


def _as_json(text: str) -> str:
    """Bytes as characters: JSON knows no bytes, and file names need not be UTF-8."""
    return os.fsencode(text).decode("latin-1")


class LocalStarter(Starter):
    """Ranks as children of one guard process; their output comes straight through pipes.

    Parameters
    ----------
    loop : Loop
        Where the descriptors are watched.
    listener : Listener
        Receives the reports.
    job_variable : tuple of str
        Name and value of an environment variable that only this job's processes have.
    environment : mapping of str to str
        The ranks' whole environment, but for what each `RankCommand` adds.
    """

    def __init__(
        self,
        loop: Loop,
        listener: Listener,
        job_variable: tuple[str, str],
        environment: Mapping[str, str],
    ) -> None:
        self._loop = loop
        self._listener = listener
        self._job_variable = job_variable
        self._outputs: dict[int, tuple[int, str]] = {}  # read end -> rank, stream
        self._paused: set[str] = set()
        self._received = b""
        self._gone = False
        self._connection, theirs = socket.socketpair()
        with theirs:
            # No -E where the interpreter needs PYTHONHOME to find its library.
            isolated = ["-s", "-S"] if "PYTHONHOME" in environment else ["-I", "-S"]
            fd = theirs.fileno()
            self._guard = subprocess.Popen(
                [sys.executable, *isolated, GUARD, str(fd), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**environment, job_variable[0]: job_variable[1]},
                pass_fds=[fd],
                start_new_session=True,
            )
        loop.add(self._connection.fileno(), self._on_report)

    def start(self, commands: Sequence[RankCommand]) -> None:
        """Start the ranks; each is reported as started or failed."""
        for command in commands:
            self._start_one(command)

    def _start_one(self, command: RankCommand) -> None:
        writers: list[int] = []
        try:
            for stream in (STDOUT, STDERR):
                reader, writer = os.pipe2(os.O_CLOEXEC)
                writers.append(writer)
                os.set_blocking(reader, False)
                self._outputs[reader] = (command.rank, stream)
                self._watch(reader)
            fds = [*writers, *command.extra_fds]
            request = {
                "request": "start",
                "rank": command.rank,
                "argv": [_as_json(argument) for argument in command.argv],
                "environment": {
                    _as_json(name): _as_json(value) for name, value in command.environment.items()
                },
                "cwd": None if command.cwd is None else _as_json(command.cwd),
                "fds": list(range(1, len(fds) + 1)),
                "ignore_signals": list(command.ignore_signals),
            }
            self._request(request, fds)
        finally:
            for writer in writers:
                os.close(writer)

    def _request(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        data = json.dumps(message).encode() + b"\n"
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        with contextlib.suppress(OSError):  # its end is noticed by the loop
            sent = self._connection.sendmsg([data], rights)
            self._connection.sendall(data[sent:])

    def send_signal(
        self, number: int, ranks: Collection[int] | None = None, *, whole_group: bool = True
    ) -> None:
        """Send a signal to the running ones among `ranks` (None: all)."""
        chosen = None if ranks is None else list(ranks)
        self._request(
            {"request": "signal", "number": number, "ranks": chosen, "whole_group": whole_group}
        )

    def stop(self, term_after: float, kill_after: float) -> None:
        """End what is left: SIGTERM after `term_after` seconds, SIGKILL after `kill_after`."""
        self._request({"request": "stop", "term_after": term_after, "kill_after": kill_after})
        self._loop.call_later(kill_after + GUARD_PATIENCE, self._give_guard_up)

    def pause_output(self, stream: str, paused: bool) -> None:
        """Stop or resume reading the ranks' `stream`."""
        if paused == (stream in self._paused):
            return
        (self._paused.add if paused else self._paused.discard)(stream)
        for reader, (_, name) in self._outputs.items():
            if name == stream:
                (self._loop.remove if paused else self._watch)(reader)

    def _watch(self, reader: int) -> None:
        if self._outputs[reader][1] not in self._paused:
            self._loop.add(reader, functools.partial(self._read_output, reader))

    def _read_output(self, reader: int) -> bool:
        """Pass on what one pipe has; False if there was nothing more to read."""
        rank, stream = self._outputs[reader]
        try:
            data = os.read(reader, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._close_output(reader)
        self._listener.on_output(rank, stream, data)
        return bool(data)

    def _close_output(self, reader: int) -> None:
        self._loop.remove(reader)
        del self._outputs[reader]
        os.close(reader)

    def _drain(self, rank: int | None = None) -> None:
        """Read what the pipes of an ended rank (None: of all) still hold, without waiting."""
        for reader, (owner, _) in list(self._outputs.items()):
            if rank is None or rank == owner:
                for _ in range(64):  # a grandchild may write for ever
                    if not self._read_output(reader):
                        break

    def _on_report(self) -> None:
        try:
            data = self._connection.recv(CHUNK)
        except OSError:
            data = b""
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            self._serve(json.loads(line))
        if not data and not self._gone:
            self._kill_all()
            self._finish("the guard process of the job ended unexpectedly")

    def _serve(self, report: dict[str, Any]) -> None:
        kind = report["report"]
        if kind == "started":
            self._listener.on_started(report["rank"], report["pid"])
        elif kind == "failed":
            reason = os.strerror(report["errno"]) if report["errno"] else report["text"]
            self._listener.on_start_failed(report["rank"], reason)
        elif kind == "exited":
            self._drain(report["rank"])
            self._listener.on_exited(report["rank"], report["code"], report["time"])
        else:
            left = ", ".join(str(pid) for pid in report["left"])
            self._finish(f"these processes cannot be killed: {left}" if left else None)

    def _give_guard_up(self) -> None:
        if not self._gone:
            self._kill_all()
            self._finish("the guard process of the job did not answer")

    def _kill_all(self) -> None:
        with contextlib.suppress(OSError):
            self._guard.kill()  # the ranks get SIGKILL with it, by PR_SET_PDEATHSIG
        kill_processes_with(*self._job_variable)

    def _finish(self, problem: str | None) -> None:
        if self._gone:
            return
        self._gone = True
        self._loop.remove(self._connection.fileno())
        self._drain()
        for reader, (rank, stream) in list(self._outputs.items()):
            self._close_output(reader)
            self._listener.on_output(rank, stream, b"")
        self._listener.on_gone(problem)

    def close(self) -> None:
        """Release everything; kill at once whatever is still there."""
        if not self._gone:
            self._kill_all()
        self._gone = True
        self._loop.remove(self._connection.fileno())
        self._connection.close()
        for reader in list(self._outputs):
            self._close_output(reader)
        try:
            self._guard.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self._guard.send_signal(signal.SIGKILL)
            self._guard.wait()
