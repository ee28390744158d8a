"""What all of Horovod's front ends share."""

from __future__ import annotations

from typing import Any

from horovod import _alias


def __getattr__(name: str) -> Any:
    """Load a shared module that nobody has imported yet."""
    return _alias.child("horovod.common", name)
