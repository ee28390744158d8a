"""Finds the processes of a job by a variable in their environment.

The last resort, for when the guard itself was killed; it also finds what has left the process tree.
"""

from __future__ import annotations

import os
import signal
import time


def processes_with(name: str, value: str) -> list[int]:
    """Return the ids of the processes whose environment has `name` set to `value`.

    The environment is the one that a process was started with. Processes of other users cannot
    be seen, zombies have none, and the calling process is left out.
    """
    wanted = os.fsencode(f"{name}={value}")
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry.name}/environ", "rb") as file:  # noqa: PTH123
                if wanted in file.read().split(b"\0"):
                    found.append(int(entry.name))
        except OSError:
            continue  # it has just ended, or belongs to somebody else
    return found


def kill_processes_with(name: str, value: str, patience: float = 2.0) -> list[int]:
    """Send SIGKILL to `processes_with` until none is left; return those that outlive `patience`.

    Parameters
    ----------
    name, value : str
        The variable.
    patience : float
        Seconds.
    """
    give_up = time.monotonic() + patience
    while left := processes_with(name, value):
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        if time.monotonic() >= give_up:
            return left
        time.sleep(0.01)
    return []
