"""NumPy arrays as the core sees them: no copy for contiguous arrays in native byte order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from syrtos.adapter import View, dtype_number, native
from syrtos.compression import numpy_dtype
from syrtos.errors import InvalidRequestError

if TYPE_CHECKING:
    from syrtos import _core

__all__ = ["ADAPTER", "NumpyAdapter"]

Array = np.ndarray[Any, np.dtype[Any]]


@cache
def _number_of(dtype: np.dtype[Any]) -> int:
    """Return the core's dtype number; "opaque" for what is moved as bytes and never reduced."""
    if dtype.kind in "biufc" or dtype.name == "bfloat16":
        return dtype_number(dtype.name)  # float128 and the like are opaque by their name
    return dtype_number("opaque")


def _refuse(dtype: np.dtype[Any], what: str) -> None:
    if dtype.hasobject or dtype.kind in "OT":
        raise TypeError(
            f"{what}: arrays of dtype {dtype} hold references to Python objects, which mean "
            "nothing to another process. Use a dtype of fixed size, or broadcast_object and "
            "allgather_object."
        )
    if dtype.itemsize == 0:
        raise TypeError(f"{what}: elements of dtype {dtype} have no bytes.")


def _to_array(tensor: Any, what: str) -> Array:
    """Return an array for lists, scalars and subclasses; never a copy of an array."""
    if isinstance(tensor, np.ma.MaskedArray):
        raise TypeError(f"{what}: a masked array would lose its mask; send data and mask apart.")
    try:
        return np.asarray(tensor)
    except ValueError as error:
        raise InvalidRequestError(f"{what}: this is no rectangular array: {error}") from None


def _usable(array: Array) -> bool:
    flags = array.flags
    native = array.dtype.isnative or _number_of(array.dtype) == dtype_number("opaque")
    return bool(flags.c_contiguous and flags.aligned and native)


def _view_of(array: Array, target: Any) -> View:
    dtype = array.dtype
    address = native().array_address(array)
    return View(_number_of(dtype), dtype.itemsize, array.shape, address, array, target)


class NumpyAdapter:
    """`syrtos.adapter.TensorAdapter` for NumPy arrays, scalars and nested lists.

    Notes
    -----
    Zero copies for C-contiguous, aligned arrays in native byte order; others are copied, and
    in-place results are written back. ml_dtypes' bfloat16 is known by its name: the package need
    not be there. Results have the dtype of the input, byte order included.
    """

    name = "numpy"

    def view(self, tensor: Any, *, in_place: bool, what: str) -> View:
        """Return the array's memory, or that of a copy."""
        array = tensor if type(tensor) is np.ndarray else _to_array(tensor, what)
        _refuse(array.dtype, what)
        if in_place:
            self._check_writable(tensor, what)
        if _usable(array):
            return _view_of(array, tensor)
        # ndmin and order keep a 0-d array 0-d, which ascontiguousarray does not.
        dtype = array.dtype
        if _number_of(dtype) != dtype_number("opaque"):
            dtype = dtype.newbyteorder("=")
        return _view_of(np.array(array, dtype=dtype, order="C", copy=True, subok=False), tensor)

    @staticmethod
    def _check_writable(tensor: Any, what: str) -> None:
        if not isinstance(tensor, np.ndarray):
            raise TypeError(
                f"{what}: only an array can be changed in place, not {type(tensor).__name__}. "
                "Use the function without the underscore."
            )
        if not tensor.flags.writeable:
            raise InvalidRequestError(
                f"{what}: the array is read-only and cannot be changed in place. Use the function "
                "without the underscore, or a copy."
            )

    def empty_like(self, view: View) -> View:
        """Return a new array of the same shape and native dtype."""
        return _view_of(np.empty(view.shape, view.owner.dtype), view.target)

    def from_buffer(
        self, buffer: _core.OwnedBuffer | None, shape: tuple[int, ...], like: View
    ) -> Any:
        """Return an array over the engine's memory, which lives as long as the array."""
        dtype = like.owner.dtype
        if buffer is None or 0 in shape:
            array = np.empty(shape, dtype)
        else:
            array = np.frombuffer(memoryview(buffer), np.uint8).view(dtype).reshape(shape)
        return self._as_target(array, like.target)

    def finish(self, view: View) -> Any:
        """Return the output array, in the byte order of the input."""
        return self._as_target(view.owner, view.target)

    @staticmethod
    def _as_target(array: Array, target: Any) -> Array:
        dtype = getattr(target, "dtype", None)
        if isinstance(dtype, np.dtype) and not dtype.isnative and array.dtype.isnative:
            return array.astype(array.dtype.newbyteorder("S"))
        return array

    def write_back(self, view: View) -> Any:
        """Copy the result into the user's array unless it is there already."""
        if view.owner is not view.target:
            view.target[...] = view.owner
        return view.target

    def cast(self, view: View, wire: str) -> View:
        """Return the array in the dtype on the wire."""
        dtype = numpy_dtype(wire)
        if view.owner.dtype == dtype:
            return view
        return _view_of(view.owner.astype(dtype), None)

    def uncast(self, tensor: Any, view: View) -> Any:
        """Return a result in the dtype of the user's array."""
        return self._as_target(tensor.astype(view.owner.dtype), view.target)

    def is_floating(self, view: View) -> bool:
        """Whether the dtype is a real floating-point one that the core can reduce."""
        names = ("float16", "bfloat16", "float32", "float64")
        return view.dtype in {dtype_number(name) for name in names}

    def integers(self, values: Sequence[int]) -> Any:
        """Return a vector of int64."""
        return np.array(values, np.int64)


ADAPTER = NumpyAdapter()
