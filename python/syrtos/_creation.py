"""Making an engine: finding the store, and waiting for the other ranks so that Ctrl-C works."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from syrtos import _tf_config, config
from syrtos.errors import InvalidRequestError, SyrtosError

if TYPE_CHECKING:
    from syrtos import _core

__all__ = ["Creation"]


#: The store that this process serves, by its ``host:port``; kept for the next engines of the job.
_served: dict[str, _core.TcpStoreServer] = {}


def _serve(setup: config.Setup, port: int) -> None:
    """Serve the store of a job that has no launcher, unless this process does so already."""
    from syrtos import _core

    if setup.store in _served:
        return
    try:
        _served[setup.store] = _core.TcpStoreServer(setup.settings.address, port)
    except SyrtosError as error:
        raise type(error)(
            f"rank 0 cannot serve the rendezvous store at {setup.store}, where {_tf_config.NAME} "
            f"puts the first task: {error} Is another process, or a TensorFlow server of this "
            "script, using that port?"
        ) from error


def _connect(setup: config.Setup) -> _core.Store | None:
    from syrtos import _core

    if not setup.store:
        return None
    host, colon, port = setup.store.rpartition(":")
    if not colon or not port.isdigit() or not host:
        raise InvalidRequestError(f"SYRTOS_STORE={setup.store!r}: must be host:port.")
    if setup.serves_store and setup.settings.rank == 0:
        _serve(setup, int(port))
        host = setup.settings.address
    return _core.TcpStore.connect(host.strip("[]"), int(port), setup.settings.start_timeout)


class Creation:
    """Makes an engine on its own thread, so that Ctrl-C works while other ranks are awaited."""

    def __init__(self, setup: config.Setup) -> None:
        self._setup = setup
        self._lock = threading.Lock()
        self._abandoned = False
        self._engine: _core.Engine | None = None
        self._error: BaseException | None = None

    def _body(self) -> None:
        from syrtos import _core

        engine = None
        try:
            engine = _core.Engine.create(self._setup.settings.to_core(), _connect(self._setup))
        except BaseException as error:  # handed to the caller below
            self._error = error
        with self._lock:
            self._engine = engine
            unwanted = self._abandoned
        if unwanted and engine is not None:
            engine.close()

    def run(self) -> _core.Engine:
        thread = threading.Thread(target=self._body, name="syrtos-init", daemon=True)
        thread.start()
        try:
            thread.join()
        except BaseException:
            with self._lock:
                self._abandoned = True
            if self._engine is not None:
                self._engine.close()
            raise
        if self._error is not None:
            raise self._error
        assert self._engine is not None
        return self._engine
