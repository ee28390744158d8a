"""The YAML file of ``horovodrun --config-file``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from syrtos.errors import InvalidRequestError

__all__ = ["FLAGS", "read_config_file"]

#: Arguments that are on or off; all others have a value.
FLAGS = frozenset(
    {
        *("hierarchical_allreduce", "hierarchical_allgather", "torus_allreduce", "autotune"),
        *("timeline_mark_cycles", "no_stall_check", "mpi_threads_disable", "log_with_timestamp"),
    }
)

# Group of the file -> key -> the option's argument that stands for it.
_KEYS: dict[str, dict[str, str]] = {
    "params": {
        name: name
        for name in (
            *("fusion_threshold_mb", "cycle_time_ms", "cache_capacity"),
            *("hierarchical_allreduce", "hierarchical_allgather", "torus_allreduce"),
        )
    },
    "autotune": {
        "enabled": "autotune",
        **{
            name: f"autotune_{name}"
            for name in (
                *("log_file", "warmup_samples", "steps_per_sample", "bayes_opt_max_samples"),
                "gaussian_process_noise",
            )
        },
    },
    "timeline": {"filename": "timeline_filename", "mark_cycles": "timeline_mark_cycles"},
    "stall_check": {
        "enabled": "stall_check",
        "warning_time_seconds": "stall_check_warning_time_seconds",
        "shutdown_time_seconds": "stall_check_shutdown_time_seconds",
    },
    "library_options": {
        name: name
        for name in (
            *("mpi_threads_disable", "num_nccl_streams", "thread_affinity"),
            "gloo_timeout_seconds",
        )
    },
    "logging": {"level": "log_level", "with_timestamp": "log_with_timestamp"},
}


def _load(path: Path) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise InvalidRequestError(
            f"--config-file {path}: PyYAML is needed to read it: pip install pyyaml"
        ) from error
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequestError(f"--config-file {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"--config-file {path}: this is no YAML: {error}") from error


def read_config_file(path: Path) -> dict[str, Any]:
    """Return what the file says, by the names of the options' arguments.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    InvalidRequestError
        It cannot be read, or a group or key is unknown; the text names it.
    """
    data = _load(path)
    if data is None:
        return {}
    where = f"--config-file {path}"
    if not isinstance(data, Mapping):
        raise InvalidRequestError(f"{where}: it must hold groups such as params, not {data!r}")
    values: dict[str, Any] = {}
    for group, content in data.items():
        if group == "controller":
            values.update(_controller(content, where))
        elif group not in _KEYS:
            known = ", ".join(["controller", *_KEYS])
            raise InvalidRequestError(f"{where}: {group!r} is no group; they are {known}")
        elif content is not None:
            values.update(_group(group, content, where))
    return values


def _controller(name: Any, where: str) -> dict[str, Any]:
    if str(name).lower() not in ("gloo", "mpi"):
        raise InvalidRequestError(f"{where}: controller: {name!r} is neither gloo nor mpi")
    return {f"use_{str(name).lower()}": True}


def _group(group: str, content: Any, where: str) -> Iterator[tuple[str, Any]]:
    if not isinstance(content, Mapping):
        raise InvalidRequestError(f"{where}: {group}: it must hold keys with values")
    for key, value in content.items():
        if key not in _KEYS[group]:
            known = ", ".join(_KEYS[group])
            raise InvalidRequestError(f"{where}: {group}: {key!r} is no key; they are {known}")
        if value is None:
            continue
        name = _KEYS[group][key]
        if (name in FLAGS or name == "stall_check") and not isinstance(value, bool):
            raise InvalidRequestError(f"{where}: {group}: {key}: {value!r} is not true or false")
        yield ("no_stall_check", not value) if name == "stall_check" else (name, value)
