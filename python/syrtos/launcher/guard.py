"""The guard of a job's processes on one machine: starts them, reaps them and leaves none behind.

The launcher runs this file as a script (``python -I -S guard.py FD PID``), so it imports only the
standard library and nothing of Syrtos. It is a process of its own, because the launcher may be
killed by a signal that cannot be caught, and because a user's program that calls ``syrtos.run``
must not become the parent of strangers.

How nothing is left behind:

- The guard is a *subreaper*: whatever descends from a rank stays below the guard, also after its
  own parent has ended or after ``setsid``. So a walk over the tree finds every process.
- The guard notices the end of the launcher by the closed socket and by a pidfd (a child of the
  user's program may hold a copy of the socket open).
- The ranks notice the end of the guard by ``PR_SET_PDEATHSIG``. That signal is sent when the
  *thread* ends that forked; the guard has only one.

Messages are lines of JSON over a stream socket; file descriptors of a rank travel beside its
``start`` message. Requests: ``start``, ``signal``, ``stop``. Reports: ``started``, ``failed``,
``exited``, and ``gone`` once no process is left.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time

TYPE_CHECKING = False  # typing is slow to import, and each start of a job waits for the guard
if TYPE_CHECKING:
    from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

#: Grace in seconds between SIGTERM and SIGKILL after the launcher has died.
ORPHAN_GRACE = 2.0
#: How long SIGKILL is repeated before the guard gives up, in seconds.
KILL_PATIENCE = 4.0
#: Descriptors from here on are free for moving others about in a child.
SCRATCH_FD = 64


def prctl(option: int, value: int) -> bool:
    """Call prctl(2); return whether it worked."""
    try:
        return ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0  # type: ignore[no-any-return]
    except (OSError, AttributeError):
        return False


def descendants(root: int) -> list[int]:
    """Return the ids of all processes below `root`, parents first.

    Parameters
    ----------
    root : int
        A process id; it is not part of the result.
    """
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            with open(f"/proc/{entry.name}/stat", "rb") as file:  # noqa: PTH123 (starts faster)
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue  # it has just ended
        children.setdefault(parent, []).append(int(entry.name))
    found: list[int] = []
    level = children.get(root, [])
    while level:
        found += level
        level = [grandchild for child in level for grandchild in children.get(child, ())]
    return found


def to_bytes(text: str) -> bytes:
    """Undo the launcher's decoding: JSON knows no bytes, and locales may differ."""
    return text.encode("latin-1")


def send_signal(pid: int, number: int) -> None:
    """Send a signal to one process that may have ended or changed its user."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def become_rank(spec: dict[str, Any], fds: list[int], errors: int, guard: int) -> NoReturn:
    """Turn a freshly forked child into the rank's program; report a failure on `errors`."""
    try:
        os.setsid()
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != guard:
            os._exit(1)
        ignored = set(spec.get("ignore_signals", ()))
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, SCRATCH_FD) for fd in fds]
        errors = fcntl.fcntl(errors, fcntl.F_DUPFD_CLOEXEC, SCRATCH_FD)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for fd, target in zip(high, spec["fds"], strict=True):
            os.dup2(fd, target)
        if spec["cwd"] is not None:
            os.chdir(to_bytes(spec["cwd"]))
        argv = [to_bytes(argument) for argument in spec["argv"]]
        added = {to_bytes(name): to_bytes(value) for name, value in spec["environment"].items()}
        os.execvpe(argv[0], argv, {**os.environb, **added})
    except BaseException as error:
        code = getattr(error, "errno", None) or 0
        os.write(errors, f"{code} {error}".encode(errors="replace"))
    finally:
        os._exit(127)


class Guard:
    """Serves the launcher's requests until no process is left."""

    def __init__(self, connection: socket.socket, launcher: int) -> None:
        self._connection = connection
        self._launcher = launcher
        self._received = b""
        self._fds: list[int] = []
        self._ranks: dict[int, int] = {}  # process id -> rank, while it runs
        self._term_at: float | None = None
        self._kill_at: float | None = None
        self._childless = True

    def serve(self) -> None:
        """Work until the job is over: asked to stop, or left alone, and no process remains."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        poller = select.poll()
        poller.register(self._connection.fileno(), select.POLLIN)
        poller.register(wake_read, select.POLLIN)
        launcher_fd = self._watch_launcher()
        if launcher_fd is not None:
            poller.register(launcher_fd, select.POLLIN)
        while not (self._kill_at is not None and self._childless):
            for fd, _ in poller.poll(self._poll_timeout(launcher_fd is not None)):
                if fd == wake_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, 4096)
                elif fd == launcher_fd or not self._receive():
                    poller.unregister(fd)
                    self.stop(0.0, ORPHAN_GRACE)
            if os.getppid() != self._launcher:
                self.stop(0.0, ORPHAN_GRACE)
            self._reap()
            self._keep_deadlines()
        self._send({"report": "gone", "left": []})

    def _watch_launcher(self) -> int | None:
        try:
            return os.pidfd_open(self._launcher)
        except (OSError, AttributeError):
            return None

    def _poll_timeout(self, watched: bool) -> float | None:
        """Milliseconds until something is due; None if nothing is."""
        due = [at for at in (self._term_at, self._kill_at) if at is not None]
        if due:
            return max(0.0, (min(due) - time.monotonic()) * 1000) + 1
        return None if watched else 1000.0

    def _send(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the launcher is gone: nobody to tell
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def _receive(self) -> bool:
        """Read and serve requests; False at the end of the connection."""
        space = socket.CMSG_SPACE(16 * array.array("i").itemsize)
        try:
            data, ancillary, _, _ = self._connection.recvmsg(1 << 16, space)
        except OSError:
            return False
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds = array.array("i")
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
                for fd in fds:
                    os.set_inheritable(fd, False)
                    self._fds.append(fd)
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            request = json.loads(line)
            if request["request"] == "start":
                self._start(request)
            elif request["request"] == "signal":
                self._signal_ranks(request)
            else:
                self.stop(request["term_after"], request["kill_after"])
        return bool(data)

    def _start(self, spec: dict[str, Any]) -> None:
        count = len(spec["fds"])
        fds, self._fds = self._fds[:count], self._fds[count:]
        errors_read, errors_write = os.pipe()
        guard = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            pid = -1
            os.write(errors_write, f"{error.errno} {error}".encode())
        if pid == 0:
            become_rank(spec, fds, errors_write, guard)
        for fd in (errors_write, *fds):
            os.close(fd)
        with open(errors_read, "rb") as file:  # noqa: PTH123
            failure = file.read().decode(errors="replace")
        if failure:
            number, _, text = failure.partition(" ")
            report = {"errno": int(number), "text": text}
            self._send({"report": "failed", "rank": spec["rank"], **report})
            return
        self._ranks[pid] = spec["rank"]
        self._childless = False
        self._send({"report": "started", "rank": spec["rank"], "pid": pid})

    def _signal_ranks(self, request: dict[str, Any]) -> None:
        for pid, rank in self._ranks.items():
            if request["ranks"] is None or rank in request["ranks"]:
                # The rank is not reaped yet, so neither number can belong to somebody else.
                target = -pid if request["whole_group"] else pid
                send_signal(target, request["number"])

    def stop(self, term_after: float, kill_after: float) -> None:
        """Let the processes end by themselves, then SIGTERM, then SIGKILL; delays in seconds."""
        now = time.monotonic()
        if self._term_at is not None:
            self._term_at = min(self._term_at, now + term_after)
        elif self._kill_at is None:
            self._term_at = now + term_after
        kill_at = now + kill_after
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)

    def _keep_deadlines(self) -> None:
        now = time.monotonic()
        if self._term_at is not None and now >= self._term_at:
            self._term_at = None
            for pid in descendants(os.getpid()):
                send_signal(pid, signal.SIGTERM)
                send_signal(pid, signal.SIGCONT)  # a stopped process would not see the other
        if self._kill_at is not None and now >= self._kill_at and not self._childless:
            self._kill()

    def _kill(self) -> None:
        """Kill until nothing is left, also what is forked meanwhile."""
        give_up = time.monotonic() + KILL_PATIENCE
        while not self._childless and time.monotonic() < give_up:
            for pid in descendants(os.getpid()):
                send_signal(pid, signal.SIGKILL)
            time.sleep(0.005)
            self._reap()
        if not self._childless:
            self._send({"report": "gone", "left": descendants(os.getpid())})
            os._exit(1)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except OSError as error:
                self._childless = error.errno == errno.ECHILD
                return
            if pid == 0:
                return
            rank = self._ranks.pop(pid, None)
            if rank is not None:
                code = os.waitstatus_to_exitcode(status)
                report = {"rank": rank, "code": code, "time": time.monotonic()}
                self._send({"report": "exited", **report})


def main() -> None:
    """Run the guard on the socket and for the launcher named on the command line."""
    fd, launcher = int(sys.argv[1]), int(sys.argv[2])
    # Signals that go to all processes of a job (a batch system's, say) are the launcher's affair.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    os.set_inheritable(fd, False)
    Guard(socket.socket(fileno=fd), launcher).serve()


if __name__ == "__main__":
    main()
