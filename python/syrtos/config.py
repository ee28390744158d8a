"""Settings: keyword arguments of ``init``, then ``SYRTOS_*``, then ``HOROVOD_*``, then the default.

The environment is read when `resolve` runs, that is in ``init()``, never at import. Fields of
`Settings` carry the names of ``syrtos::Config`` (cpp/syrtos/base/config.h); durations are seconds.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syrtos import _contract, _topology
from syrtos.errors import InvalidRequestError

if TYPE_CHECKING:
    from syrtos import _core

__all__ = ["KNOBS", "LOG_LEVELS", "Knob", "Settings", "Setup", "mention_ignored", "resolve"]

_log = logging.getLogger("syrtos")

#: Names in the order of ``syrtos::LogLevel``.
LOG_LEVELS = ("trace", "debug", "info", "warning", "error", "fatal", "off")


@dataclass(frozen=True)
class Settings:
    """Mirror of ``syrtos::Config``; its header describes each field."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1
    host: str = "localhost"
    address: str = "127.0.0.1"
    job_id: str = ""
    epoch: int = 0
    fusion_threshold_bytes: int = 128 << 20
    cache_capacity: int = 1 << 16
    backend: str = ""
    strict_join: bool = False
    start_timeout: float = 30.0
    heartbeat_interval: float = 1.0
    peer_timeout: float = 10.0
    stall_warning: float = 60.0
    stall_limit: float = 0.0
    timeline_path: str = ""
    timeline_mark_cycles: bool = False
    gloo_plugin_path: str = ""

    def to_core(self) -> _core.Config:
        """Return the same values as the core's struct."""
        from syrtos import _core

        config = _core.Config()
        for field in fields(self):
            setattr(config, field.name, getattr(self, field.name))
        return config


@dataclass(frozen=True)
class Setup:
    """All that ``init`` needs: the core's settings and the few that Python keeps to itself."""

    settings: Settings
    #: ``host:port`` of the rendezvous store; "" in a world of one.
    store: str = ""
    #: Index into `LOG_LEVELS`.
    log_level: int = LOG_LEVELS.index("warning")
    #: Whether rank 0 serves the store itself, as there is no launcher that does.
    serves_store: bool = False


def _whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e8:
        raise ValueError
    return value


def _some_seconds(text: str) -> float:
    value = _seconds(text)
    if value <= 0:
        raise ValueError
    return value


_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})


def _flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in _TRUE | _FALSE:
        raise ValueError
    return lowered in _TRUE


def _level(text: str) -> int:
    return LOG_LEVELS.index(text.strip().lower())


def _timeline(text: str) -> str:
    # Horovod's DYNAMIC means "started later by start_timeline", which is always possible here.
    return "" if text == "DYNAMIC" else text


@dataclass(frozen=True)
class Knob:
    """One setting: where it may come from and what it may be."""

    field: str
    #: Environment names without prefix, all read as ``SYRTOS_<name>``.
    name: str
    parse: Callable[[str], Any]
    allowed: str
    #: Horovod's name, read as ``HOROVOD_<name>``; "" if it has none.
    horovod: str = ""


_BYTES = "a whole number of bytes, 0 or more (0: no fusion)"
_POSITIVE = "seconds, more than 0"
_SECONDS = "seconds, 0 or more (0: never)"
_FLAG = "1 or 0 (also true/false, yes/no, on/off)"

KNOBS: tuple[Knob, ...] = (
    Knob("fusion_threshold_bytes", "FUSION_THRESHOLD", _whole, _BYTES, "FUSION_THRESHOLD"),
    Knob(
        "cache_capacity",
        "CACHE_CAPACITY",
        _whole,
        "a whole number of entries, 0 or more (0: no cache)",
        "CACHE_CAPACITY",
    ),
    Knob("backend", "BACKEND", str, "the name of a communicator, see `syrtos doctor`"),
    Knob("strict_join", "STRICT_JOIN", _flag, _FLAG),
    Knob("start_timeout", "START_TIMEOUT", _some_seconds, _POSITIVE, "START_TIMEOUT"),
    Knob("heartbeat_interval", "HEARTBEAT_INTERVAL", _some_seconds, _POSITIVE),
    Knob("peer_timeout", "PEER_TIMEOUT", _some_seconds, _POSITIVE, "GLOO_TIMEOUT_SECONDS"),
    Knob(
        "stall_warning",
        "STALL_CHECK_TIME_SECONDS",
        _seconds,
        _SECONDS,
        "STALL_CHECK_TIME_SECONDS",
    ),
    Knob(
        "stall_limit",
        "STALL_SHUTDOWN_TIME_SECONDS",
        _seconds,
        _SECONDS,
        "STALL_SHUTDOWN_TIME_SECONDS",
    ),
    Knob("timeline_path", "TIMELINE", _timeline, "a file name, or DYNAMIC", "TIMELINE"),
    Knob("timeline_mark_cycles", "TIMELINE_MARK_CYCLES", _flag, _FLAG, "TIMELINE_MARK_CYCLES"),
    Knob("gloo_plugin_path", "GLOO_PLUGIN", str, "the file libsyrtos_gloo.so"),
    Knob("log_level", "LOG_LEVEL", _level, "one of " + ", ".join(LOG_LEVELS), "LOG_LEVEL"),
)
_STALL_DISABLE = Knob(
    "stall_check_disable", "STALL_CHECK_DISABLE", _flag, _FLAG, "STALL_CHECK_DISABLE"
)
_BY_FIELD = {knob.field: knob for knob in KNOBS}

#: Horovod's names that mean nothing here: accepted, and mentioned once at log level DEBUG.
IGNORED = (
    *("CYCLE_TIME", "AUTOTUNE", "AUTOTUNE_LOG", "HIERARCHICAL_ALLREDUCE", "TORUS_ALLREDUCE"),
    *("HIERARCHICAL_ALLGATHER", "DISABLE_GROUP_FUSION", "BATCH_D2D_MEMCOPIES", "CPU_OPERATIONS"),
    *("NUM_NCCL_STREAMS", "ENABLE_ASYNC_COMPLETION", "DISABLE_NVTX_RANGES", "CONTROLLER"),
    *("THREAD_AFFINITY", "ADASUM_MPI_CHUNK_SIZE", "MPI_THREADS_DISABLE", "LOG_HIDE_TIME"),
    *("DYNAMIC_PROCESS_SETS", "GLOO_IFACE", "CCL_CACHE", "ENABLE_XLA_OPS", "ELASTIC_TIMEOUT"),
    *("AUTOTUNE_WARMUP_SAMPLES", "AUTOTUNE_STEPS_PER_SAMPLE", "AUTOTUNE_BAYES_OPT_MAX_SAMPLES"),
    *("AUTOTUNE_GAUSSIAN_PROCESS_NOISE",),
)
#: Those of them that ask for something which is missed: mentioned by a warning if switched on.
MISSED = ("AUTOTUNE",)


def _from_environment(knob: Knob, environ: Mapping[str, str]) -> tuple[bool, Any]:
    """Return (found, value) of a knob."""
    names = [f"SYRTOS_{knob.name}"]
    if knob.horovod:
        names.append(f"HOROVOD_{knob.horovod}")
    for name in names:
        text = environ.get(name)
        if text is None:
            continue
        try:
            return True, knob.parse(text)
        except ValueError:
            raise InvalidRequestError(f"{name}={text!r}: must be {knob.allowed}.") from None
    return False, None


def _from_argument(name: str, value: Any) -> Any:
    """Check a keyword argument of ``init`` by the same rules as its environment variable."""
    knob = _BY_FIELD.get(name)
    if knob is None:
        raise TypeError(
            f"init() has no setting {name!r}. The settings are: {', '.join(sorted(_BY_FIELD))}."
        )
    # A bool is an int to Python, but True is no number of seconds.
    fits = not isinstance(value, bool) or knob.parse is _flag
    try:
        if not fits or not isinstance(value, int | float | str | Path):
            raise ValueError
        return knob.parse(str(int(value)) if isinstance(value, bool) else str(value))
    except ValueError:
        raise InvalidRequestError(f"init({name}={value!r}): must be {knob.allowed}.") from None


#: What holds where neither ``init`` nor the environment says otherwise, by field. The alias
#: ``horovod`` puts in where Horovod differs.
DEFAULTS: dict[str, Any] = {}

_said: set[str] = set()


def mention_ignored(environ: Mapping[str, str] | None = None) -> None:
    """Say once, at level DEBUG, which variables of Horovod are set but mean nothing here.

    Rank 0 warns of those that ask for a feature which is missing.
    """
    environ = os.environ if environ is None else environ
    is_first = environ.get(_contract.RANK, "0") == "0"
    for name in IGNORED:
        full = f"HOROVOD_{name}" if f"HOROVOD_{name}" in environ else f"SYRTOS_{name}"
        if full in environ and full not in _said:
            _said.add(full)
            missed = name in MISSED and environ[full].strip().lower() in _TRUE and is_first
            level = logging.WARNING if missed else logging.DEBUG
            _log.log(level, "%s=%s has no effect in Syrtos and is ignored", full, environ[full])


def default_plugin() -> str:
    plugin = Path(__file__).with_name("libsyrtos_gloo.so")
    return str(plugin) if plugin.exists() else ""


def resolve(
    arguments: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Setup:
    """Gather the settings of this process.

    Parameters
    ----------
    arguments : mapping, optional
        Settings given to ``init``; they win over the environment.
    environ : mapping, optional
        Environment variables; those of the process if not given.

    Returns
    -------
    Setup
        Checked settings; the epoch is still 0.

    Raises
    ------
    InvalidRequestError
        A value that is not allowed, or a launch that left out a part of the contract; the text
        names the variable, its value and what is allowed.
    TypeError
        A keyword argument that is no setting.
    """
    environ = os.environ if environ is None else environ
    topology, store = _topology.read(environ)
    values: dict[str, Any] = dict(DEFAULTS)
    for knob in KNOBS:
        found, value = _from_environment(knob, environ)
        if found:
            values[knob.field] = value
    found, disabled = _from_environment(_STALL_DISABLE, environ)
    if found and disabled:
        values["stall_warning"] = 0.0
    for name, value in (arguments or {}).items():
        values[name] = _from_argument(name, value)
    level: int = values.pop("log_level", LOG_LEVELS.index("warning"))
    values["gloo_plugin_path"] = values.get("gloo_plugin_path") or default_plugin()
    settings = replace(Settings(**topology), **values)
    return Setup(
        settings=settings,
        store=store,
        log_level=level,
        serves_store=bool(store) and not environ.get(_contract.STORE),
    )
