"""Passes the ranks' output on: whole lines, each with its rank, and copies in files.

Bytes are never decoded. A line that is not complete yet waits, so that lines of different ranks do
not mix; it is shown all the same after a pause, when it gets too long, and when it holds a carriage
return (a progress bar). Who then writes next begins a new line.
"""

from __future__ import annotations

import collections
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from syrtos.launcher.sink import Sink, Target, write_all
from syrtos.launcher.starter import STDERR, STDOUT

#: A longer line is shown in pieces.
LINE_LIMIT = 1 << 16
#: Seconds after which an incomplete line is shown: soon where a person looks, else rather whole.
PAUSE_TERMINAL, PAUSE_PIPE = 0.2, 2.0
#: How much of a rank's last words is kept for the report of a failure.
TAIL_BYTES = 4096
#: At most about so much of a rank's stack dump is kept.
CAPTURE_LIMIT = 1 << 18

CARRIAGE_RETURN = re.compile(rb"\r(?!\n)")
COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)


@dataclass(frozen=True)
class OutputOptions:
    """How output looks and where copies go.

    Attributes
    ----------
    prefix : bool
        Begin each line with ``[rank]<stdout>:``.
    timestamp : bool
        Put the time before the prefix.
    directory : Path or None
        Folder for ``rank.<number>/stdout`` and ``stderr``, raw bytes without prefix.
    """

    prefix: bool = True
    timestamp: bool = False
    directory: Path | None = None


class Console:
    """The launcher's own stdout and stderr, shared by all ranks.

    Parameters
    ----------
    stdout, stderr : Target
        May be one and the same terminal or file; then the order of lines is kept.
    on_change : callable
        Called on another thread when a sink has room again or has failed.
    """

    def __init__(self, stdout: Target, stderr: Target, on_change: Callable[[], None]) -> None:
        out = Sink(stdout, on_change)
        err = out if stdout.same_as(stderr) else Sink(stderr, on_change)
        self.sinks = {STDOUT: out, STDERR: err}
        colour = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        self.terminal = {STDOUT: stdout.is_terminal, STDERR: stderr.is_terminal}
        self.colour = {name: colour and is_one for name, is_one in self.terminal.items()}
        #: Which stream has left its line incomplete on a sink.
        self.open_line: dict[Sink, RankStream | None] = {out: None, err: None}
        self.lines = 0

    def say(self, text: str) -> None:
        """Write lines of the launcher itself to stderr."""
        sink = self.sinks[STDERR]
        start = b"\n" if self.open_line[sink] else b""
        self.open_line[sink] = None
        sink.write(start + text.encode(errors="backslashreplace") + b"\n")

    def close(self, timeout: float | None) -> None:
        """End open lines and wait until all is written, at most `timeout` seconds a sink."""
        for sink in set(self.sinks.values()):
            sink.write(b"\n" if self.open_line[sink] else b"")
            sink.close(timeout)


class RankStream:
    """One output stream of one rank.

    Parameters
    ----------
    console : Console
        Where the lines go.
    rank : int
        The rank.
    name : str
        ``"stdout"`` or ``"stderr"``.
    options : OutputOptions
        How the lines look.
    copy : RankFile or None
        Receives the raw bytes.
    """

    def __init__(
        self, console: Console, rank: int, name: str, options: OutputOptions, copy: RankFile | None
    ) -> None:
        self._console = console
        self._sink = console.sinks[name]
        self._options = options
        self._label = f"[{rank}]<{name}>:".encode() if options.prefix else b""
        if console.colour[name] and self._label:
            self._label = b"\x1b[%dm%b\x1b[0m" % (COLOURS[rank % len(COLOURS)], self._label)
        self._copy = copy
        self._pending = b""
        self._fed_at = 0.0
        self._tail: collections.deque[bytes] = collections.deque()
        self._tail_bytes = 0
        #: Collects what comes from now on, if set.
        self.captured: bytearray | None = None
        self._pause = PAUSE_TERMINAL if console.terminal[name] else PAUSE_PIPE
        #: Value of the console's line counter after this stream's last line.
        self.last_line = 0

    def pause_left(self) -> float | None:
        """Return after how many seconds `flush` is due; None if no incomplete line waits."""
        if not self._pending:
            return None
        if self._sink.is_full:  # then it is not the rank that pauses
            return self._pause
        return max(0.0, self._fed_at + self._pause - time.monotonic())

    @property
    def tail(self) -> list[str]:
        """The last lines, for the report of a failure."""
        text = b"".join(self._tail)[-TAIL_BYTES:].decode(errors="backslashreplace")
        return text.splitlines()

    def feed(self, data: bytes) -> None:
        """Take bytes from the rank; empty bytes are the end of the stream."""
        if self._copy is not None:
            self._copy.write(data)
        if not data:
            self.flush()
            self._end_line()
            return
        self._fed_at = time.monotonic()
        self._remember(data)
        if self.captured is not None and len(self.captured) < CAPTURE_LIMIT:
            self.captured += data
        data = self._pending + data
        whole = data.rfind(b"\n") + 1
        if whole:
            self._show(data[:whole])
        self._pending = data[whole:]
        undisturbed = self._console.open_line[self._sink] in (None, self)
        if len(self._pending) > LINE_LIMIT or (undisturbed and b"\r" in self._pending):
            self.flush()

    def flush(self) -> None:
        """Show the incomplete line."""
        # A carriage return at the end may be half of a line's end: it waits for the next byte.
        kept = b"\r" if self._pending.endswith(b"\r") else b""
        self._show(self._pending[: len(self._pending) - len(kept)])
        self._pending = kept

    def _remember(self, data: bytes) -> None:
        self._tail.append(data[-TAIL_BYTES:])
        self._tail_bytes += len(self._tail[-1])
        while self._tail_bytes - len(self._tail[0]) >= TAIL_BYTES:
            self._tail_bytes -= len(self._tail.popleft())

    def _show(self, data: bytes) -> None:
        if not data:
            return
        prefix = self._label
        if self._options.timestamp:
            prefix = time.strftime("%a %b %d %H:%M:%S %Y ").encode() + prefix
        owner = self._console.open_line[self._sink]
        start = b"" if owner is self else prefix if owner is None else b"\n" + prefix
        if owner is not self:
            data = data.lstrip(b"\r") if CARRIAGE_RETURN.match(data) else data
        if b"\r" in data:
            data = CARRIAGE_RETURN.sub(lambda _: b"\r" + prefix, data)
        complete = data.endswith(b"\n")
        body = data[:-1] if complete else data
        lines = body.replace(b"\n", b"\n" + prefix) if prefix else body
        self._sink.write(start + lines + (b"\n" if complete else b""))
        self._console.open_line[self._sink] = None if complete else self
        self._console.lines += body.count(b"\n") + 1
        self.last_line = self._console.lines

    def _end_line(self) -> None:
        self._pending = b""
        if self._console.open_line[self._sink] is self:
            self._sink.write(b"\n")
            self._console.open_line[self._sink] = None


class RankFile:
    """A copy of one stream on disk; trouble with it is said once and never ends the job.

    Parameters
    ----------
    path : Path
        The file; its folder is made.
    warn : callable
        Receives the text of the warning.
    """

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        self._path = path
        self._warn = warn
        self._fd: int | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        except OSError as error:
            warn(f"cannot write {path}: {error.strerror}; the job goes on without this file")

    def write(self, data: bytes) -> None:
        """Append `data`; empty data closes the file."""
        if self._fd is None:
            return
        try:
            write_all(self._fd, data)
        except OSError as error:
            self._warn(f"cannot write {self._path}: {error.strerror}; the job goes on without it")
            data = b""
        if not data:
            os.close(self._fd)
            self._fd = None
