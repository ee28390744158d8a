"""``TF_CONFIG`` tells ranks and addresses where no launcher of Syrtos does."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

from syrtos import config
from syrtos.errors import InvalidRequestError


def text_of(cluster: dict[str, list[str]], kind: str, index: int) -> str:
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


def setup_of(cluster: dict[str, list[str]], kind: str, index: int, **environ: str) -> config.Setup:
    return config.resolve(environ={"TF_CONFIG": text_of(cluster, kind, index), **environ})


# 127.0.0.x are hosts that every machine can resolve.
CLUSTER = {
    "worker": ["127.0.0.1:5001", "127.0.0.2:5002", "127.0.0.2:5003"],
    "chief": ["127.0.0.1:5000"],
    "ps": ["127.0.0.9:5009"],
}


@pytest.mark.parametrize(
    ("kind", "index", "numbers", "host"),
    [
        # rank, local rank, local size, cross rank, cross size
        ("chief", 0, (0, 0, 2, 0, 2), "127.0.0.1"),
        ("worker", 0, (1, 1, 2, 0, 2), "127.0.0.1"),
        ("worker", 1, (2, 0, 2, 1, 2), "127.0.0.2"),
        ("worker", 2, (3, 1, 2, 1, 2), "127.0.0.2"),
    ],
)
def test_the_chief_comes_first_and_hosts_are_grouped(
    kind: str, index: int, numbers: tuple[int, ...], host: str
) -> None:
    setup = setup_of(CLUSTER, kind, index)
    s = setup.settings
    assert (s.rank, s.local_rank, s.local_size, s.cross_rank, s.cross_size) == numbers
    assert (s.size, s.host, s.address) == (4, host, host)
    assert (setup.store, setup.serves_store) == ("127.0.0.1:5000", True)
    assert s.job_id == setup_of(CLUSTER, "chief", 0).settings.job_id


def test_hosts_with_different_numbers_of_ranks() -> None:
    cluster = {"worker": ["127.0.0.1:1", "127.0.0.2:1", "127.0.0.1:2"]}
    places = [setup_of(cluster, "worker", i).settings for i in range(3)]
    assert [(s.local_rank, s.local_size) for s in places] == [(0, 2), (0, 1), (1, 2)]
    assert [(s.cross_rank, s.cross_size) for s in places] == [(0, 2), (1, 2), (0, 1)]


def test_another_cluster_is_another_job() -> None:
    other = {**CLUSTER, "worker": ["127.0.0.1:5001"]}
    ids = [setup_of(cluster, "chief", 0).settings.job_id for cluster in (CLUSTER, other)]
    assert ids[0]
    assert ids[0] != ids[1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        text_of({"worker": ["127.0.0.1:5000"]}, "worker", 0),
        text_of({"chief": ["127.0.0.1:5000"]}, "chief", 0),
    ],
)
def test_one_task_is_a_world_of_one(text: str) -> None:
    setup = config.resolve(environ={"TF_CONFIG": text})
    assert (setup.settings.size, setup.store, setup.serves_store) == (1, "", False)


def test_the_launcher_wins() -> None:
    environ = {"SYRTOS_RANK": "0", "SYRTOS_SIZE": "1"}
    assert setup_of(CLUSTER, "worker", 2, **environ).settings.size == 1
    assert setup_of(CLUSTER, "worker", 2, SYRTOS_ALLOW_SINGLE="1").settings.size == 1


def test_the_address_of_the_listeners_can_be_set() -> None:
    setup = setup_of(CLUSTER, "worker", 0, SYRTOS_ADDRESS="127.0.0.7")
    assert setup.settings.address == "127.0.0.7"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no description of a cluster"),
        ("[1]", "no description of a cluster"),
        ('{"cluster": {"worker": 3}}', "no description of a cluster"),
        (text_of(CLUSTER, "worker", 3), 'no task "worker" with the index 3'),
        (text_of(CLUSTER, "ps", 0), 'type "ps", which takes no part'),
        (text_of(CLUSTER, "evaluator", 0), 'type "evaluator", which takes no part'),
        (text_of({"worker": ["a", "b:1"]}, "worker", 1), "'a' must be host:port"),
        (
            text_of({"worker": ["127.0.0.1:1", "no.such.host.invalid:1"]}, "worker", 1),
            "'no.such.host.invalid' of this task cannot be resolved",
        ),
    ],
)
def test_what_cannot_be_understood_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as caught:
        config.resolve(environ={"TF_CONFIG": text})
    assert str(caught.value).startswith("TF_CONFIG: ")
    assert "syrtosrun" in str(caught.value)


SCRIPT = """
import json, sys
import numpy as np
import syrtos.numpy as hvd
for attempt in range(2):  # the store outlives an engine
    hvd.init()
    total = hvd.allreduce(np.array([1.0 + hvd.rank()]), op=hvd.Sum)
    numbers = [hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()]
    print(json.dumps([*numbers, total.tolist()]), flush=True)
    hvd.shutdown()
"""


def start(text: str, script: str = SCRIPT, **environ: str) -> Any:
    inherited = {name: v for name, v in os.environ.items() if not name.startswith("SYRTOS_RANK")}
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env={**inherited, "TF_CONFIG": text, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_processes_with_nothing_but_tf_config_find_each_other() -> None:
    # Held without a listener, so that the first task can take the port but no other process does.
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
        cluster = {"chief": [f"localhost:{port}"], "worker": ["localhost:1", "localhost:2"]}
        tasks = [("worker", 1), ("worker", 0), ("chief", 0)]  # the chief comes last
        processes = [start(text_of(cluster, kind, index)) for kind, index in tasks]
        try:
            outputs = [process.communicate(timeout=60) for process in processes]
        finally:
            for process in processes:
                process.kill()
    for (_, error), process in zip(outputs, processes, strict=True):
        assert process.returncode == 0, error
    for (out, _), rank in zip(outputs, (2, 1, 0), strict=True):
        assert [json.loads(line) for line in out.splitlines()] == [[rank, 3, rank, 3, [6.0]]] * 2


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = start(text_of({"worker": [address, "127.0.0.1:1"]}, "worker", 0))
        try:
            _, error = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode != 0
    assert f"cannot serve the rendezvous store at {address}" in error
    assert "using that port?" in error
