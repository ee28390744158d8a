"""One job from its start to its end: who failed first, and when the others have to stop."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from syrtos.errors import PeerLostError, ShutdownError
from syrtos.launcher.loop import Loop
from syrtos.launcher.output import Console, OutputOptions, RankFile, RankStream
from syrtos.launcher.signals import forwarded_signals
from syrtos.launcher.sink import Target
from syrtos.launcher.starter import STDERR, STDOUT, Listener, RankCommand, Starter

#: Seconds until SIGTERM and SIGKILL. After a failure the other ranks may first raise by themselves.
AFTER_FAILURE = (3.0, 4.5)
#: Processes that ranks left behind although all ranks have ended.
AFTER_END = (0.5, 2.5)
AT_ONCE = (0.0, 1.0)
#: Lines of others after which a failed rank's last words are repeated at the end.
SCROLLED = 10
#: A rank that dies with one of these only follows another one.
CONSEQUENCES = (PeerLostError.__name__, ShutdownError.__name__)

MakeStarter: TypeAlias = Callable[[Loop, Listener], Starter]


@dataclass
class RankState:
    """What is known of one rank.

    Attributes
    ----------
    command : RankCommand
        What was started.
    streams : dict of str to RankStream
        Its stdout and stderr.
    pid : int or None
        Process id, once started.
    code : int or None
        Exit code, negative for a signal, once ended.
    ended : float
        When it ended, CLOCK_MONOTONIC.
    stopped : bool
        Whether it only ended because the launcher told it to.
    problem : str
        Why it could not be started.
    """

    command: RankCommand
    streams: dict[str, RankStream]
    pid: int | None = None
    code: int | None = None
    ended: float = 0.0
    stopped: bool = False
    problem: str = ""

    @property
    def failed(self) -> bool:
        """Whether it ended badly by itself."""
        return self.code not in (None, 0) and not self.stopped

    def describe(self) -> str:
        """Say who ended and how."""
        who = f"rank {self.command.rank} on {self.command.host}"
        if self.problem:
            return f"{who} could not be started: {self.command.argv[0]}: {self.problem}"
        who += f" (pid {self.pid})"
        if self.code is None or self.code >= 0:
            return f"{who} exited with code {self.code}"
        try:
            name = signal.Signals(-self.code).name
        except ValueError:
            name = "signal"
        hint = ""
        if -self.code == signal.SIGKILL and not self.stopped:
            hint = "; the kernel does so when memory runs out (see dmesg)"
        return f"{who} was killed by {name} ({-self.code}){hint}"


@dataclass
class JobResult:
    """How a job ended.

    Attributes
    ----------
    ranks : dict of int to RankState
        All ranks.
    first_failure : RankState or None
        The cause, as far as it can be told.
    signal_number : int or None
        The signal that told the launcher to stop.
    reader_left : bool
        Whether nobody reads the launcher's output any more.
    problem : str or None
        What went wrong with the job as a whole.
    """

    ranks: dict[int, RankState]
    first_failure: RankState | None = None
    signal_number: int | None = None
    reader_left: bool = False
    problem: str | None = None

    @property
    def exit_code(self) -> int:
        """The launcher's exit code."""
        if self.signal_number is not None:
            return 128 + self.signal_number
        if self.reader_left:
            return 128 + signal.SIGPIPE
        if self.first_failure is not None and self.first_failure.code is not None:
            code = self.first_failure.code
            return code if code > 0 else 128 - code
        return 0 if self.problem is None else 1


@dataclass(frozen=True)
class JobOptions:
    """How a job behaves.

    Attributes
    ----------
    abort_on_failure : bool
        End all ranks when one fails.
    output : OutputOptions
        How output looks.
    verbose : bool
        Tell the process ids.
    name : str
        How the launcher calls itself in its messages.
    report : bool
        Print who failed (else the caller does).
    handle_signals : bool
        Pass SIGINT, SIGTERM and SIGHUP on to the ranks; for the main thread only.
    """

    abort_on_failure: bool = True
    output: OutputOptions = field(default_factory=OutputOptions)
    verbose: bool = False
    name: str = "syrtosrun"
    report: bool = True
    handle_signals: bool = False


class Job:
    """Starts ranks, passes their output on, and ends when nothing of them is left.

    Parameters
    ----------
    commands : sequence of RankCommand
        The ranks.
    make_starter : callable
        Makes the `Starter` for a loop and a listener.
    targets : tuple of two Target
        Where stdout and stderr go.
    options : JobOptions
        How the job behaves.
    """

    def __init__(
        self,
        commands: Sequence[RankCommand],
        make_starter: MakeStarter,
        targets: tuple[Target, Target],
        options: JobOptions,
    ) -> None:
        self._options = options
        self._commands = commands
        self.loop = Loop()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.loop.add(self._wake_fd, self._on_sinks_changed)
        self._console = Console(*targets, on_change=lambda: os.eventfd_write(self._wake_fd, 1))
        self._warned: set[str] = set()
        width = len(str(len(commands) - 1))
        self.result = JobResult({c.rank: self._rank_state(c, width) for c in commands})
        self._running = len(commands)
        self._stopping = False
        #: From when on the end of a rank is the launcher's doing.
        self._terminated_at = float("inf")
        self._gone = False
        self._flush_scheduled: set[RankStream] = set()
        self._starter = make_starter(self.loop, self)

    def _rank_state(self, command: RankCommand, width: int) -> RankState:
        streams = {}
        for name in (STDOUT, STDERR):
            copy = None
            if self._options.output.directory is not None:
                folder = self._options.output.directory / f"rank.{command.rank:0{width}}"
                copy = RankFile(folder / name, self._warn_about_file)
            streams[name] = RankStream(
                self._console, command.rank, name, self._options.output, copy
            )
        return RankState(command, streams)

    def say(self, text: str) -> None:
        """Print a line of the launcher's own."""
        self._console.say(f"{self._options.name}: {text}")

    def _warn_once(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            self.say(text)

    def _warn_about_file(self, text: str) -> None:
        self._warn_once("file", text)

    def run(self) -> JobResult:
        """Run the job to its end; nothing of it is left afterwards."""
        patience: float | None = 1.0
        try:
            with self._signals():
                self._starter.start(self._commands)
                self.loop.run_until(lambda: self._gone)
            self._conclude()
            if self.result.signal_number is None:
                patience = None
        except KeyboardInterrupt:
            self._starter.send_signal(signal.SIGINT)
            self.stop(*AT_ONCE)
            self.loop.run_until(lambda: self._gone)
            raise
        finally:
            self._starter.close()
            self._console.close(patience)
            self.loop.close()
            os.close(self._wake_fd)
        return self.result

    def _signals(self) -> contextlib.AbstractContextManager[None]:
        if not self._options.handle_signals:
            return contextlib.nullcontext()
        return forwarded_signals(self.loop, self.on_signal)

    def stop(self, term_after: float, kill_after: float) -> None:
        """End all ranks; delays in seconds."""
        self._stopping = True
        self._terminated_at = min(self._terminated_at, time.monotonic() + term_after)
        self._starter.stop(term_after, kill_after)

    def on_signal(self, number: int) -> None:
        """Pass a signal of the launcher on to all ranks; the second one kills them."""
        if self.result.signal_number is None:
            self.result.signal_number = number
            self._starter.send_signal(number)
            self.stop(*AFTER_FAILURE)
        else:
            self._starter.stop(0.0, 0.0)

    def dump_stacks_and_kill(self, number: int) -> bool:
        """Ask each rank for its stacks by a signal, collect what it says on stderr, end the job.

        Returns
        -------
        bool
            False if the job is ending anyway.
        """
        if self._stopping:
            return False
        self._stopping = True
        for state in self.result.ranks.values():
            state.streams[STDERR].captured = bytearray()
        self._starter.send_signal(number, whole_group=False)
        self._await_silence(time.monotonic() + 3.0, -1)
        return True

    def _await_silence(self, give_up: float, before: int) -> None:
        """Stop the job once no more of the stacks arrives."""
        size = sum(len(s.streams[STDERR].captured or b"") for s in self.result.ranks.values())
        if (size == before and size > 0) or time.monotonic() > give_up or self._running == 0:
            self.stop(*AT_ONCE)
        else:
            self.loop.call_later(0.2, lambda: self._await_silence(give_up, size))

    # ---- reports of the starter ----

    def on_started(self, rank: int, pid: int) -> None:
        """Remember the process id."""
        self.result.ranks[rank].pid = pid
        if self._options.verbose:
            self.say(f"rank {rank} on {self.result.ranks[rank].command.host} has pid {pid}")

    def on_start_failed(self, rank: int, text: str) -> None:
        """Treat a program that cannot be started as the shell does."""
        self.result.ranks[rank].problem = text
        self.on_exited(rank, 127, time.monotonic())
        self.stop(*AT_ONCE)

    def on_output(self, rank: int, stream: str, data: bytes) -> None:
        """Show what a rank wrote."""
        to = self.result.ranks[rank].streams[stream]
        to.feed(data)
        if to not in self._flush_scheduled:
            self._flush_after_pause(to)
        if self._console.sinks[stream].is_full:
            self._starter.pause_output(stream, True)

    def _flush_after_pause(self, stream: RankStream) -> None:
        self._flush_scheduled.discard(stream)
        left = stream.pause_left()
        if left:
            self._flush_scheduled.add(stream)
            self.loop.call_later(left, lambda: self._flush_after_pause(stream))
        elif left is not None:
            stream.flush()

    def on_exited(self, rank: int, code: int, when: float) -> None:
        """Note the end of a rank; the first failure ends the others."""
        state = self.result.ranks[rank]
        state.code, state.ended = code, when
        ended_by_us = when >= self._terminated_at or -code in (signal.SIGTERM, signal.SIGKILL)
        state.stopped = self._stopping and ended_by_us
        self._running -= 1
        if state.failed:
            self._on_failure(state)
        if self._running == 0:
            self.stop(*AFTER_END)

    def _on_failure(self, state: RankState) -> None:
        if self._stopping:
            return
        others = self._options.abort_on_failure and self._running > 0
        if self._options.report:
            self.say(state.describe() + ("; stopping the other ranks" if others else ""))
        if self._options.abort_on_failure:
            self.stop(*AFTER_FAILURE)

    def on_gone(self, problem: str | None) -> None:
        """End the loop."""
        self._gone = True
        self.result.problem = problem

    # ---- the launcher's own output ----

    def _on_sinks_changed(self) -> None:
        os.eventfd_read(self._wake_fd)
        for stream, sink in self._console.sinks.items():
            if not sink.is_full:
                self._starter.pause_output(stream, False)
            if sink.error is None:
                continue
            if not sink.reader_left:
                text = f"cannot write to {stream}: {sink.error.strerror}"
                self._warn_once(stream, f"{text}; further output is dropped")
            elif stream == STDOUT and not self.result.reader_left:
                self.result.reader_left = True
                self.stop(0.0, 2.0)

    # ---- the end ----

    def _conclude(self) -> None:
        """Find the cause and tell it."""
        failures = sorted(
            (state for state in self.result.ranks.values() if state.failed),
            key=lambda state: state.ended,
        )
        causes = [state for state in failures if not _is_consequence(state)]
        self.result.first_failure = next(iter(causes or failures), None)
        if self._options.report:
            self._report(failures)
        if self.result.problem is not None:
            self.say(self.result.problem)

    def _report(self, failures: list[RankState]) -> None:
        first = self.result.first_failure
        told = self.result.signal_number is not None or self.result.reader_left
        if first is None or told:
            return
        others = [state for state in failures if state is not first]
        stderr = first.streams[STDERR]
        scrolled = self._console.lines - stderr.last_line >= SCROLLED
        if stderr.tail and scrolled:
            self.say(f"the last lines of rank {first.command.rank} on stderr were:")
            for line in stderr.tail[-SCROLLED:]:
                self._console.say(f"  | {line}")
        if others:
            self.say(f"first failure: {first.describe()}")
            for state in others:
                why = " (because of another rank)" if _is_consequence(state) else ""
                self.say(f"also failed{why}: {state.describe()}")


def _is_consequence(state: RankState) -> bool:
    """Whether a rank only failed because another one did, judged by its last words."""
    last = state.streams[STDERR].tail[-3:]
    return any(name in line for line in last for name in CONSEQUENCES)
