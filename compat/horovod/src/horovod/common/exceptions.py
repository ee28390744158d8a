"""Horovod's exceptions; `syrtos.errors` tells which Syrtos raises."""

from __future__ import annotations

from syrtos.elastic import HostsUpdatedInterrupt
from syrtos.errors import HorovodInternalError

__all__ = [
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "get_version_mismatch_message",
]


def get_version_mismatch_message(name: str, version: str, installed_version: str) -> str:
    """Return the text for a framework of another version than at installation."""
    return (
        f"{name} has version {version}, but {installed_version} was there at installation. "
        "Reinstall what was built for it."
    )


class HorovodVersionMismatchError(ImportError):
    """A framework has another version than at installation; never raised by Syrtos.

    Parameters
    ----------
    name : str
        The framework.
    version, installed_version : str
        Now and then.
    """

    def __init__(self, name: str, version: str, installed_version: str) -> None:
        super().__init__(get_version_mismatch_message(name, version, installed_version))
        self.name = name
        self.version = version
        self.installed_version = installed_version
