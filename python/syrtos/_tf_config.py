"""Who this process is among the ranks, as ``TF_CONFIG`` tells.

TensorFlow's own launchers (Kubeflow's TFJob, Vertex AI, Ray Train and scripts for
``MultiWorkerMirroredStrategy``) describe a job in this variable: ``cluster`` lists the
``host:port`` of each task by its type, ``task`` says which one this process is. The chief comes
first, then the workers. No launcher of Syrtos is there, so rank 0 serves the rendezvous store, at
the ``host:port`` of its own task.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Mapping
from typing import Any

from syrtos import _contract
from syrtos.errors import InvalidRequestError

__all__ = ["NAME", "read"]

NAME = "TF_CONFIG"
#: Types of tasks that train, in the order of their ranks; "master" is the chief's older name.
_TYPES = ("chief", "master", "worker")


def _wrong(text: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{NAME}: {text}. Correct it, or unset it to run as a world of one, or start the script "
        "with `syrtosrun -np N python script.py`."
    )


def _parse(text: str) -> tuple[dict[str, list[str]], str, int]:
    """Return the addresses of all tasks by type, and this task's type and index."""
    try:
        whole = json.loads(text)
        cluster = {kind: list(tasks) for kind, tasks in (whole.get("cluster") or {}).items()}
        task = whole.get("task") or {}
        kind, index = str(task.get("type", "")), int(task.get("index", -1))
    except (AttributeError, TypeError, ValueError) as error:
        raise _wrong(f"{text!r} is no description of a cluster ({error})") from None
    return cluster, kind, index


def _host(task: Any) -> str:
    """Return the host of ``host:port``."""
    host, colon, port = str(task).rpartition(":")
    if not colon or not host or not port.isdigit():
        raise _wrong(f"the task {task!r} must be host:port")
    return host.strip("[]")


def _address_of(host: str) -> str:
    """Return the numeric address of this process's own host."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise _wrong(f"the host {host!r} of this task cannot be resolved ({error})") from None
    return str(found[0][4][0])


def _numbers(hosts: list[str], rank: int) -> dict[str, int]:
    """Return the ranks and sizes that follow from the hosts of all ranks."""
    host = hosts[rank]
    local_rank = hosts[:rank].count(host)
    # The hosts that have a rank with this local rank, in the order of their first ranks.
    peers = [other for other in dict.fromkeys(hosts) if hosts.count(other) > local_rank]
    return {
        "rank": rank,
        "size": len(hosts),
        "local_rank": local_rank,
        "local_size": hosts.count(host),
        "cross_rank": peers.index(host),
        "cross_size": len(peers),
    }


def read(environ: Mapping[str, str]) -> tuple[dict[str, Any], str] | None:
    """Return the fields of ``Settings`` that follow from ``TF_CONFIG``, and the store.

    Parameters
    ----------
    environ : mapping
        Environment variables. ``SYRTOS_ADDRESS`` replaces the address of this rank's listeners.

    Returns
    -------
    tuple or None
        The fields, and ``host:port`` of the store, which rank 0 is to serve; None if the variable
        is not set or tells of one task only.

    Raises
    ------
    InvalidRequestError
        It cannot be understood, or this task does not train; nothing is guessed.
    """
    text = environ.get(NAME, "").strip()
    if not text:
        return None
    cluster, kind, index = _parse(text)
    tasks = [(each, i) for each in _TYPES for i in range(len(cluster.get(each, ())))]
    if len(tasks) < 2 and kind in ("", *_TYPES):
        return None
    if kind not in _TYPES:
        raise _wrong(
            f'this process is a task of the type "{kind}", which takes no part in training with '
            f"Syrtos; only {', '.join(_TYPES)} do"
        )
    if (kind, index) not in tasks:
        raise _wrong(f'the cluster has no task "{kind}" with the index {index}')
    addresses = [cluster[each][i] for each, i in tasks]
    hosts = [_host(address) for address in addresses]
    values: dict[str, Any] = dict(_numbers(hosts, tasks.index((kind, index))))
    values["host"] = hosts[values["rank"]]
    values["address"] = environ.get(_contract.ADDRESS) or _address_of(values["host"])
    # The same on all ranks, and another one for another cluster that meets this one's store.
    values["job_id"] = hashlib.sha256(json.dumps(addresses).encode()).hexdigest()[:32]
    return values, str(addresses[0])
