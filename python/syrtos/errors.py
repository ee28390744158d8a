"""The exceptions of Syrtos.

::

    SyrtosError (RuntimeError)         also under Horovod's name HorovodInternalError
    |-- InvalidRequestError (ValueError)    the caller's own fault, on this rank or on all alike
    |-- MismatchError (ValueError)          ranks disagree about one operation; raised on all
    |-- NotInitializedError (ValueError)    before init(), after shutdown(), in a forked child
    |-- PeerLostError (ConnectionError)     a rank died or went silent; recoverable
    |-- CollectiveTimeout (TimeoutError)    a limit that the user set has passed
    |-- BackendUnavailableError             nothing installed can do this
    |-- ShutdownError                       a rank that is needed has shut down; recoverable
    `-- InternalError                       a broken invariant: please report it

``recoverable`` alone decides whether elastic training restores and goes on.
"""

from __future__ import annotations

__all__ = [
    "BackendUnavailableError",
    "CollectiveTimeout",
    "HorovodInternalError",
    "InternalError",
    "InvalidRequestError",
    "MismatchError",
    "NotInitializedError",
    "PeerLostError",
    "ShutdownError",
    "SyrtosError",
    "from_status",
]


class SyrtosError(RuntimeError):
    """Base of all errors that Syrtos raises."""

    recoverable: bool = False


class InvalidRequestError(SyrtosError, ValueError):
    """An argument that no rank could serve."""


class MismatchError(SyrtosError, ValueError):
    """Ranks disagree about one operation."""


class NotInitializedError(SyrtosError, ValueError):
    """There is no engine in this process."""


class PeerLostError(SyrtosError, ConnectionError):
    """A rank died or went silent."""

    recoverable = True


class CollectiveTimeout(SyrtosError, TimeoutError):
    """A limit that the user set has passed."""


class BackendUnavailableError(SyrtosError):
    """Nothing that is installed can do this."""


class ShutdownError(SyrtosError):
    """A rank that is needed, or this engine, has shut down."""

    recoverable = True


class InternalError(SyrtosError):
    """A broken invariant of Syrtos itself."""


HorovodInternalError = SyrtosError

# The numbers of syrtos::StatusCode (cpp/syrtos/base/status.h).
_BY_CODE: dict[int, type[SyrtosError]] = {
    1: InvalidRequestError,
    2: MismatchError,
    3: NotInitializedError,
    4: PeerLostError,
    5: CollectiveTimeout,
    6: BackendUnavailableError,
    7: ShutdownError,
    8: InternalError,
}


def from_status(code: int, message: str) -> SyrtosError:
    """Make the exception for a status code of the core.

    Parameters
    ----------
    code : int
        A number of ``syrtos::StatusCode``, not 0.
    message : str
        The text for the user.
    """
    return _BY_CODE.get(code, InternalError)(message)
