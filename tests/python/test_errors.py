"""The exception tree, its numbers, and the way from a Status to an exception."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from syrtos import _session, errors

STATUS_H = Path(__file__).parents[2] / "cpp/syrtos/base/status.h"
BUILTIN = {
    errors.InvalidRequestError: ValueError,
    errors.MismatchError: ValueError,
    errors.NotInitializedError: ValueError,
    errors.PeerLostError: ConnectionError,
    errors.CollectiveTimeout: TimeoutError,
}
CODES = {
    "InvalidArgument": errors.InvalidRequestError,
    "Mismatch": errors.MismatchError,
    "NotInitialized": errors.NotInitializedError,
    "PeerLost": errors.PeerLostError,
    "Timeout": errors.CollectiveTimeout,
    "BackendUnavailable": errors.BackendUnavailableError,
    "Shutdown": errors.ShutdownError,
    "Internal": errors.InternalError,
}


def test_every_error_is_a_syrtos_error_and_a_runtime_error() -> None:
    for kind in CODES.values():
        assert issubclass(kind, errors.SyrtosError)
        assert issubclass(kind, RuntimeError)
        assert issubclass(kind, BUILTIN.get(kind, RuntimeError))
    assert errors.HorovodInternalError is errors.SyrtosError


def test_only_the_loss_of_others_is_recoverable() -> None:
    recoverable = {kind for kind in CODES.values() if kind.recoverable}
    assert recoverable == {errors.PeerLostError, errors.ShutdownError}


def test_numbers_are_those_of_the_header() -> None:
    found = re.findall(r"^  k(\w+) = (\d+),", STATUS_H.read_text(), re.M)
    assert found[0] == ("Ok", "0")
    for name, number in found[1:]:
        error = errors.from_status(int(number), "text")
        assert type(error) is CODES[name]
        assert str(error) == "text"
    assert len(found) == len(CODES) + 1
    assert type(errors.from_status(_session._PEER_LOST, "")) is errors.PeerLostError


def test_an_unknown_number_is_an_internal_error() -> None:
    assert type(errors.from_status(99, "text")) is errors.InternalError


def test_a_status_of_the_core_becomes_its_exception() -> None:
    from syrtos import _core

    store = _core.MemoryStore()
    store.set("key", b"\x00value")
    assert store.get("key", 1.0) == b"\x00value"
    assert store.add("counter", 2) == 2
    with pytest.raises(errors.CollectiveTimeout, match="absent"):
        store.get("absent", 0.01)
    with pytest.raises((errors.PeerLostError, errors.CollectiveTimeout), match="127.0.0.1"):
        _core.TcpStore.connect("127.0.0.1", 1, 0.05)


def test_a_store_server_serves_until_closed() -> None:
    from syrtos import _core

    server = _core.TcpStoreServer("127.0.0.1")
    store = _core.TcpStore.connect("127.0.0.1", server.port, 5.0)
    store.set("a", b"1")
    assert store.get("a", 1.0) == b"1"
    server.close()
    server.close()
    with pytest.raises(errors.SyrtosError):
        store.get("a", 1.0)
