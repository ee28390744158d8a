"""Horovod's names on Syrtos: ``horovod.torch`` is the module ``syrtos.torch``, and so on.

Which modules are shared is written down in ``_alias``; what Syrtos has no counterpart for is in the
other modules of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from horovod import _alias, _original
from syrtos import config

if TYPE_CHECKING:
    from horovod.runner import run

_original.refuse()
_alias.install()
config.DEFAULTS["strict_join"] = True

#: The version of Horovod whose interface this is; scripts and packages compare it.
__version__ = "0.28.1"

__all__ = ["__version__", "run"]


def __getattr__(name: str) -> Any:
    """Load the launcher when it is asked for: training scripts do not need it."""
    if name == "run":
        from horovod.runner import run

        return run
    return _alias.child("horovod", name)
