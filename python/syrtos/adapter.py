"""What `syrtos._ops` needs to know about a framework's tensors.

A front end implements `TensorAdapter` for its own tensors (about a hundred lines); all rules of the
collectives are written once against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from syrtos import _core

__all__ = ["TensorAdapter", "View", "dtype_number", "part_of"]


@dataclass(slots=True)
class View:
    """Contiguous memory of one tensor, as the core sees it. Borrows: `owner` keeps it alive."""

    #: Number in the core's dtype table, and bytes of one element.
    dtype: int
    item_bytes: int
    shape: tuple[int, ...]
    pointer: int
    #: The object that owns the memory (the user's tensor, or a copy of it).
    owner: Any
    #: What the user handed in; in-place results are written back to it if it is not `owner`.
    target: Any


class TensorAdapter(Protocol):
    """Operations on the tensors of one framework.

    Notes
    -----
    All methods are called on the caller's thread, before submission or after completion; the engine
    never calls an adapter.
    """

    #: For messages: "numpy".
    name: str

    def view(self, tensor: Any, *, in_place: bool, what: str) -> View:
        """Return the tensor's memory, copied only where it is not usable as it is.

        Parameters
        ----------
        tensor : Any
            What the user handed in.
        in_place : bool
            The result is to be written to it: refuse what cannot be written.
        what : str
            ``allreduce "grad"``, for messages.

        Raises
        ------
        TypeError
            A dtype that cannot be sent; the text names it.
        """
        ...

    def empty_like(self, view: View) -> View:
        """Return new memory of the same shape and dtype; its `owner` is the future result."""
        ...

    def from_buffer(
        self, buffer: _core.OwnedBuffer | None, shape: tuple[int, ...], like: View
    ) -> Any:
        """Wrap memory of the engine as a tensor of the dtype of `like`, without a copy."""
        ...

    def finish(self, view: View) -> Any:
        """Return the user's tensor for a finished output view of `empty_like`."""
        ...

    def write_back(self, view: View) -> Any:
        """Return the user's own tensor after an in-place operation on `view`."""
        ...

    def cast(self, view: View, wire: str) -> View:
        """Return a copy in the dtype called `wire`; the same view if it has it already."""
        ...

    def uncast(self, tensor: Any, view: View) -> Any:
        """Return a result of a `cast` view in the dtype of the original `view`."""
        ...

    def is_floating(self, view: View) -> bool:
        """Whether compression applies to this dtype."""
        ...

    def integers(self, values: Sequence[int]) -> Any:
        """Return a vector of 64-bit integers (received splits)."""
        ...


@cache
def native() -> ModuleType:
    """Return the native module; an import statement in each call would cost microseconds."""
    from syrtos import _core

    return _core


@cache
def _numbers() -> dict[str, int]:
    return {name: number for number, name in enumerate(native().dtype_names())}


def dtype_number(name: str) -> int:
    """Return the core's number of a dtype by NumPy's name; that of "opaque" if it has none."""
    numbers = _numbers()
    return numbers.get(name, numbers["opaque"])


def part_of(
    view: View, output: int, *, name: str = "", splits: tuple[int, ...] = ()
) -> _core.PartTuple:
    """Return the core's description of one tensor of a request.

    Parameters
    ----------
    view : View
        The input.
    output : int
        Address for the result; 0 lets the engine allocate it.
    name : str
        The tensor's own name within a group.
    splits : tuple of int
        For alltoall: rows for each rank.
    """
    return (name, view.dtype, view.item_bytes, view.shape, view.pointer, output, splits)
