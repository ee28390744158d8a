"""Typed face of the native module. It converts, never decides; C++ headers hold the contracts."""

from collections.abc import Sequence
from typing import Any, final

# (name, dtype number, item bytes, shape, input pointer, output pointer or 0 = the engine allocates,
#  splits)
PartTuple = tuple[str, int, int, tuple[int, ...], int, int, tuple[int, ...]]

@final
class Config:
    """Mirror of ``syrtos::Config``; durations are seconds as float."""

    def __init__(self) -> None: ...
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    host: str
    address: str
    job_id: str
    epoch: int
    fusion_threshold_bytes: int
    cache_capacity: int
    backend: str
    strict_join: bool
    start_timeout: float
    heartbeat_interval: float
    peer_timeout: float
    stall_warning: float
    stall_limit: float
    timeline_path: str
    timeline_mark_cycles: bool
    gloo_plugin_path: str

class Store:
    def set(self, key: str, value: bytes) -> None: ...
    def get(self, key: str, timeout: float) -> bytes: ...
    def add(self, key: str, delta: int) -> int: ...
    def remove(self, key: str) -> None: ...

@final
class MemoryStore(Store):
    def __init__(self) -> None: ...

@final
class TcpStore(Store):
    @staticmethod
    def connect(address: str, port: int, timeout: float) -> TcpStore: ...

@final
class TcpStoreServer:
    def __init__(self, address: str, port: int = 0) -> None: ...
    @property
    def port(self) -> int: ...
    def close(self) -> None: ...

@final
class OwnedBuffer:
    """Memory that the engine allocated for a result; freed with the last reference."""

    pointer: int
    nbytes: int
    def __buffer__(self, flags: int, /) -> memoryview: ...

@final
class Completion:
    def done(self) -> bool: ...
    def raise_if_failed(self) -> None:
        """Raise the exception of ``syrtos.errors`` for a failed request; valid once done."""
    @property
    def value(self) -> int: ...
    def shape(self, part: int) -> tuple[int, ...]: ...
    def buffer(self, part: int) -> OwnedBuffer | None: ...
    def received_splits(self, part: int) -> tuple[int, ...]: ...

@final
class Engine:
    @staticmethod
    def create(config: Config, store: Store | None) -> Engine: ...
    def submit(
        self,
        kind: int,
        name: str,
        group: int,
        op: int,
        prescale: float,
        postscale: float,
        root: int,
        parts: Sequence[PartTuple],
        ranks: Sequence[int],
        average_active: bool,
    ) -> Completion: ...
    def wait(self, completion: Completion, timeout: float) -> bool:
        """Wait with the GIL released; True once done."""
    def group_ranks(self, group: int) -> list[int]: ...
    def groups(self) -> list[int]: ...
    def backends(self) -> list[str]: ...
    def start_timeline(self, path: str, mark_cycles: bool) -> None: ...
    def stop_timeline(self) -> None: ...
    def close(self) -> None: ...
    def abort(self, code: int, message: str) -> None: ...
    def raise_if_unhealthy(self) -> None: ...
    def counters(self) -> dict[str, int]: ...
    @property
    def config(self) -> Config: ...

def set_current_engine(engine: Engine | None) -> None:
    """Register the engine that framework op libraries use (c_api.h)."""

def configure_log(level: int, rank: int) -> None: ...
def backends_available(config: Config) -> list[tuple[str, bool, str]]:
    """Name, usable, and if not: why and how to fix it, for each communicator."""

def build_info() -> dict[str, Any]:
    """Version, compiler, which backends were compiled."""

def array_address(array: Any) -> int:
    """Return where the elements of a NumPy array are."""

def dtype_names() -> list[str]:
    """NumPy's names in the order of their numbers; the last is "opaque"."""
