"""Which hosts take part, and which rank runs where."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from syrtos.errors import InvalidRequestError

HOST_SLOTS = re.compile(r"(?P<name>\[[0-9A-Fa-f:.%\w]+\]|[^\s:\[\],=]+)(?::(?P<slots>[^:]*))?")


@dataclass(frozen=True)
class HostSlots:
    """A host and how many ranks it may run."""

    name: str
    slots: int


@dataclass(frozen=True)
class Place:
    """Where one rank runs, in Horovod's terms.

    Attributes
    ----------
    rank, size : int
        In the job.
    local_rank, local_size : int
        Among the ranks of its host.
    cross_rank, cross_size : int
        Among the ranks with this local rank, one a host.
    host : str
        Name of the host.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    host: str


def _slots(text: str, where: str) -> int:
    if not re.fullmatch(r"[0-9]+", text) or int(text) < 1:
        raise InvalidRequestError(f"{where}: {text!r} is not a number of slots (1 or more)")
    return int(text)


def _merge(hosts: Iterable[HostSlots]) -> list[HostSlots]:
    """Join the entries of the same host, at its first place."""
    slots: dict[str, int] = {}
    for host in hosts:
        slots[host.name] = slots.get(host.name, 0) + host.slots
    return [HostSlots(name, count) for name, count in slots.items()]


def parse_hosts(text: str) -> list[HostSlots]:
    """Read the value of ``-H``: ``host:slots`` separated by commas; without slots it is one.

    Parameters
    ----------
    text : str
        For example ``"localhost:2"``, ``"a:4,b:4"`` or ``"[::1]:2"``.

    Raises
    ------
    InvalidRequestError
        If an entry cannot be read; the text names it.
    """
    hosts = []
    for entry in text.split(","):
        match = HOST_SLOTS.fullmatch(entry.strip())
        if not match:
            raise InvalidRequestError(f"-H {text}: {entry!r} is not of the form host:slots")
        slots = 1 if match["slots"] is None else _slots(match["slots"], f"-H {entry}")
        hosts.append(HostSlots(match["name"], slots))
    return _merge(hosts)


def read_hostfile(path: Path) -> list[HostSlots]:
    """Read a host file: a host a line, as ``host slots=n``, ``host:n`` or ``host``.

    Empty lines and what follows ``#`` are skipped.

    Raises
    ------
    InvalidRequestError
        If the file or a line cannot be read; the text names file and line number.
    """
    try:
        lines = path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError as error:
        raise InvalidRequestError(f"--hostfile {path}: {error.strerror}") from error
    hosts = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"--hostfile {path}, line {number}"
        match = HOST_SLOTS.fullmatch(words[0])
        option = [word.partition("=") for word in words[1:]]
        if not match or len(option) > 1 or any(name != "slots" for name, _, _ in option):
            raise InvalidRequestError(f"{where}: {line.strip()!r} is not of the form host slots=n")
        text = option[0][2] if option else match["slots"]
        hosts.append(HostSlots(match["name"], 1 if text is None else _slots(text, where)))
    if not hosts:
        raise InvalidRequestError(f"--hostfile {path}: no host in it")
    return _merge(hosts)


def require_local(hosts: Iterable[HostSlots]) -> None:
    """Refuse hosts other than this machine.

    Raises
    ------
    InvalidRequestError
        Naming the first such host.
    """
    node = os.uname().nodename
    local = {"localhost", "127.0.0.1", "::1", "[::1]", node, node.partition(".")[0]}
    for host in hosts:
        if host.name not in local:
            raise InvalidRequestError(
                f"host {host.name!r} is not this machine ({node}): "
                "this version starts ranks on this machine only; use -H localhost:<slots>"
            )


def assign(hosts: list[HostSlots], size: int) -> list[Place]:
    """Give each rank a place, filling host after host.

    Parameters
    ----------
    hosts : list of HostSlots
        In the order of the ranks.
    size : int
        Number of ranks.

    Raises
    ------
    InvalidRequestError
        If there are fewer slots than ranks.
    """
    slots = sum(host.slots for host in hosts)
    if size > slots:
        names = ",".join(f"{host.name}:{host.slots}" for host in hosts)
        plural = "es" if size > 1 else ""
        raise InvalidRequestError(
            f"-np {size} -H {names}: {size} process{plural} > {slots} slot{'s' * (slots > 1)}; "
            "use fewer processes or more slots"
        )
    used: list[tuple[str, int]] = []
    left = size
    for host in hosts:
        if left > 0:
            used.append((host.name, min(host.slots, left)))
            left -= used[-1][1]
    places: list[Place] = []
    for index, (name, local_size) in enumerate(used):
        for local_rank in range(local_size):
            peers = [i for i, (_, count) in enumerate(used) if count > local_rank]
            places.append(
                Place(
                    rank=len(places),
                    size=size,
                    local_rank=local_rank,
                    local_size=local_size,
                    cross_rank=peers.index(index),
                    cross_size=len(peers),
                    host=name,
                )
            )
    return places
