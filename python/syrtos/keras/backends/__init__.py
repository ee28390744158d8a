"""Collectives on the tensors of Keras' backends: one module each, with the same names.

Only the module of the backend in use is imported, see `syrtos.keras._backend`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from syrtos._kinds import ReduceOp
from syrtos.compression import Compression
from syrtos.errors import SyrtosError
from syrtos.process_sets import ProcessSet, global_process_set

__all__ = ["Backend"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Backend(Protocol):
    """What each module has. Tensors are the backend's own; nothing here is differentiable."""

    #: Whether what Keras compiles with ``jit_compile=True`` may contain collectives.
    COMPILES_COLLECTIVES: bool

    def as_written(self, function: _Function) -> _Function:
        """Keep the backend from rewriting a function that it calls or traces (a decorator)."""
        ...

    def key_of(self, variable: Any) -> int:
        """Return what tells a variable, of Keras or of the backend, from all others that live."""
        ...

    def name_of(self, variable: Any) -> str:
        """Return what messages call a variable, the same on every rank; "" if unknown."""
        ...

    def is_sparse(self, gradient: Any) -> bool:
        """Whether this is a gradient of some rows only."""
        ...

    def to_tensor(self, value: Any) -> Any:
        """Return a dense tensor of a gradient, variable, array or number."""
        ...

    def divided(self, gradient: Any, divisor: float) -> Any:
        """Return a gradient, which may be sparse, divided by a number."""
        ...

    def grouped_allreduce(
        self,
        tensors: Sequence[Any],
        *,
        op: ReduceOp = ReduceOp.Average,
        compression: Any = Compression.none,
        prescale_factor: float = 1.0,
        postscale_factor: float = 1.0,
        process_set: ProcessSet = global_process_set,
        name: str | None = None,
        names: Sequence[str] = (),
        devices: tuple[str, str] = ("", ""),
    ) -> list[Any]:
        """Reduce tensors as one request, at once or as part of what is being traced.

        Parameters
        ----------
        tensors : sequence of tensor
            Sparse gradients stay sparse: their rows are gathered.
        op, compression, prescale_factor, postscale_factor, process_set, name
            See `syrtos.keras.allreduce`.
        names : sequence of str
            Of the tensors, which must be equal on all ranks; or none.
        devices : tuple of str
            Where TensorFlow puts the operations for dense and for sparse gradients.
        """
        ...

    def when_updating(
        self, optimizer: Any, function: Callable[[list[Any]], list[Any]], gradients: list[Any]
    ) -> list[Any]:
        """Return ``function(gradients)``, at least where an accumulating optimizer will update.

        Called where Keras has accumulated. On JAX it gets there with every batch, and uses the
        result of the last one only; for the others the gradients are returned as they are.
        """
        ...

    def allgather(self, value: Any, name: str | None = None) -> Any:
        """See `syrtos.keras.allgather`."""
        ...

    def broadcast(self, value: Any, root_rank: int, name: str | None = None) -> Any:
        """See `syrtos.keras.broadcast`."""
        ...

    def reducescatter(
        self, value: Any, name: str | None = None, op: ReduceOp | int = ReduceOp.Average
    ) -> Any:
        """See `syrtos.keras.reducescatter`."""
        ...

    def broadcast_variables(
        self,
        variables: Sequence[Any],
        root_rank: int,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        """Give variables the root's values, as one request, outside of what is traced."""
        ...

    # These are matched by their order, so on JAX they wait for the programs started before.

    def allgather_object(self, obj: Any, name: str | None = None) -> list[Any]:
        """See `syrtos.keras.allgather_object`."""
        ...

    def broadcast_object(
        self,
        obj: Any,
        root_rank: int = 0,
        name: str | None = None,
        process_set: ProcessSet = global_process_set,
    ) -> Any:
        """See `syrtos.keras.broadcast_object`."""
        ...

    def barrier(self, process_set: ProcessSet = global_process_set) -> None:
        """See `syrtos.keras.barrier`."""
        ...

    def join(self, *, average_active: bool = False) -> int:
        """See `syrtos.keras.join`."""
        ...

    def as_our_error(self, error: BaseException) -> SyrtosError | None:
        """Return the error of Syrtos that the backend has made into this one of its own.

        Only errors that elastic training survives; None for all others.
        """
        ...
