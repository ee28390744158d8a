"""Syrtos: Horovod's API, working today.

``import syrtos`` imports no framework, loads no native code and starts nothing. A front end such as
``syrtos.numpy`` or ``syrtos.tensorflow`` has the collectives for its tensors, besides all names
found here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syrtos import _basics, errors
from syrtos._basics import *  # noqa: F403

if TYPE_CHECKING:
    from syrtos.launcher import run

__all__ = ["__version__", "errors", "run"]
__version__: str
__all__ += _basics.__all__


def __getattr__(name: str) -> Any:
    """Load what is rarely needed when it is first asked for (PEP 562)."""
    if name == "run":
        from syrtos.launcher import run

        return run
    if name == "__version__":
        return _version()
    if name == "_core":
        import importlib

        return importlib.import_module("syrtos._core")
    raise AttributeError(f"module 'syrtos' has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("syrtos")
    except PackageNotFoundError:  # run from a source tree
        from syrtos import _core

        return str(_core.build_info()["version"])


def __dir__() -> list[str]:
    return sorted(__all__)
