"""JAX arrays as the core sees them, and trees of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from syrtos.adapter import View, dtype_number, native
from syrtos.compression import Compression
from syrtos.errors import InvalidRequestError
from syrtos.numpy.adapter import ADAPTER as NUMPY

if TYPE_CHECKING:
    from syrtos import _core

__all__ = ["ADAPTER", "JaxAdapter", "Squeezed", "Tree", "is_key", "to_array", "to_jax"]

#: XLA reads arrays of the host in place if they begin at a multiple of this.
_ALIGNMENT = 64


def is_key(value: Any) -> bool:
    """Whether this is an array of typed random keys (``jax.random.key``)."""
    dtype = getattr(value, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def to_array(value: Any, what: str) -> Any:
    """Return a JAX array, or a tracer, for numbers and arrays.

    Raises
    ------
    TypeError
        JAX has no array for it; the text names `what`.
    """
    if isinstance(value, jax.Array):
        return value
    try:
        return jnp.asarray(value)
    except TypeError as error:
        raise TypeError(
            f"{what}: {type(value).__name__} is no array of JAX: {error} For values that are no "
            "numbers use broadcast_object or allgather_object."
        ) from None


def _check_device(array: Any, what: str) -> None:
    devices = array.devices()
    if len(devices) != 1:
        raise InvalidRequestError(
            f"{what}: the array is spread over {len(devices)} devices of this process. Gather it "
            "on one first: jax.device_put(array, jax.devices()[0])."
        )
    (device,) = devices
    if device.platform != "cpu":
        raise InvalidRequestError(
            f"{what}: the array is on {device}, but this build of Syrtos moves arrays of the CPU "
            "only. Use jax.device_put(array, jax.devices('cpu')[0]), and move the result back."
        )


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Return a new array that JAX can take over without a copy."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -native().array_address(memory) % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def _view_of(array: Any, target: Any) -> View:
    opaque = array.dtype.kind not in "biufc" and array.dtype.name != "bfloat16"
    number = dtype_number("opaque" if opaque else array.dtype.name)
    address = native().array_address(array)
    return View(number, array.dtype.itemsize, array.shape, address, array, target)


class JaxAdapter:
    """`syrtos.adapter.TensorAdapter` for arrays of JAX on the CPU.

    Notes
    -----
    Inputs are read in place. Results are new arrays in memory that JAX takes over, without a copy
    where it begins at a multiple of 64 bytes. Arrays of JAX never change, so nothing is in place.
    To make an array takes JAX long, so results leave here as NumPy arrays, and `to_jax` makes all
    of a call at once.
    """

    name = "jax"

    def view(self, tensor: Any, *, in_place: bool, what: str) -> View:
        """Return the array's memory; waits until it has been computed."""
        if in_place:
            raise TypeError(f"{what}: an array of JAX cannot be changed in place.")
        array = to_array(tensor, what)
        _check_device(array, what)
        host = np.asarray(array)
        if not host.flags.c_contiguous:  # a layout of its own, which only a copy undoes
            host = np.array(host, order="C")
        return _view_of(host, array)

    def empty_like(self, view: View) -> View:
        """Return new memory of the same shape and dtype."""
        return _view_of(_aligned(view.shape, view.owner.dtype), view.target)

    def from_buffer(
        self, buffer: _core.OwnedBuffer | None, shape: tuple[int, ...], like: View
    ) -> Any:
        """Return a NumPy array over the engine's memory."""
        dtype = like.owner.dtype
        if buffer is None or 0 in shape:
            return np.empty(shape, dtype)
        return np.frombuffer(memoryview(buffer), np.uint8).view(dtype).reshape(shape)

    def finish(self, view: View) -> Any:
        """Return the output as a NumPy array."""
        return view.owner

    def write_back(self, view: View) -> Any:
        """Never called: `view` refuses what is to be in place."""
        raise TypeError("an array of JAX cannot be changed in place")

    def cast(self, view: View, wire: str) -> View:
        """Return a copy in the dtype on the wire."""
        return _view_of(view.owner.astype(jnp.dtype(wire)), view.target)

    def uncast(self, tensor: Any, view: View) -> Any:
        """Return a result in the dtype of the user's array."""
        return tensor.astype(view.owner.dtype)

    def is_floating(self, view: View) -> bool:
        """Whether the dtype is a real floating-point one that the core can reduce."""
        return NUMPY.is_floating(view)

    def integers(self, values: Sequence[int]) -> Any:
        """Return a vector of the widest integers that JAX is set to have."""
        return jnp.asarray(np.array(values, np.int64))


ADAPTER = JaxAdapter()


def to_jax(results: Sequence[Any], arrays: Sequence[Any]) -> list[Any]:
    """Return results of the adapter as arrays of JAX, where the inputs are.

    Parameters
    ----------
    results : sequence of numpy.ndarray
        Nobody may write to them any more.
    arrays : sequence of jax.Array
        The inputs.
    """
    # An array that the user has tied to a device has a result that is tied to it, and no other.
    devices = [
        next(iter(array.devices())) if getattr(array, "committed", False) else None
        for array in arrays
    ]
    if len(set(devices)) == 1:
        made: list[Any] = jax.device_put(list(results), devices[0], may_alias=True)
        return made
    pairs = zip(results, devices, strict=True)
    return [jax.device_put(result, device, may_alias=True) for result, device in pairs]


class Squeezed:
    """One array on its way through a compressor.

    Parameters
    ----------
    array : jax.Array
        What the caller has.
    compression : type of Compressor
        One of `Compression`, or a class with ``compress`` and ``decompress``.
    """

    def __init__(self, array: Any, compression: Any) -> None:
        self._custom: Any = None
        self._context: Any = None
        self._dtype = array.dtype
        self.sent = array
        if compression is Compression.none or compression is None:
            return
        wire = getattr(compression, "wire_dtype", None)
        if wire is None:
            self._custom = compression
            self.sent, self._context = compression.compress(array)
        elif array.dtype in (jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64):
            self.sent = array.astype(wire)

    def open(self, result: Any) -> Any:
        """Return a result as the caller shall see it."""
        if self._custom is not None:
            return self._custom.decompress(result, self._context)
        return result if result.dtype == self._dtype else result.astype(self._dtype)


class Tree:
    """The arrays of a tree, in the order of its keys, and how to make a tree of results.

    Parameters
    ----------
    tree : pytree
        Arrays, numbers and typed random keys; None is no leaf. Dictionaries are taken in the order
        of their keys, so two that were filled in different orders are alike.
    what : str
        The function, for messages.
    keys : bool
        Whether random keys may be among them.

    Raises
    ------
    TypeError
        A leaf that is no array; the text names its place.
    """

    def __init__(self, tree: Any, what: str, *, keys: bool = False) -> None:
        paths, self._structure = jax.tree_util.tree_flatten_with_path(tree)
        #: Where each array is in the tree: "['dense']['kernel']"; "" for an array alone.
        self.paths = [jax.tree_util.keystr(path) for path, _ in paths]
        self.arrays: list[Any] = []
        self._openers: list[Callable[[Any], Any]] = []
        for name, (_, leaf) in zip(self.paths, paths, strict=True):
            self._add(leaf, f"{what} of {name}" if name else what, keys)

    def _add(self, leaf: Any, what: str, keys: bool) -> None:
        if not is_key(leaf):
            self.arrays.append(to_array(leaf, what))
            self._openers.append(lambda array: array)
            return
        if not keys:
            raise InvalidRequestError(
                f"{what}: random keys ({leaf.dtype}) cannot be added or compared. Broadcast or "
                "gather them, or use jax.random.key_data."
            )
        kind = jax.random.key_impl(leaf)
        self.arrays.append(jax.random.key_data(leaf))
        self._openers.append(lambda data: jax.random.wrap_key_data(data, impl=kind))

    def build(self, results: Sequence[Any]) -> Any:
        """Return the tree with results in the places of the arrays."""
        leaves = [opener(result) for opener, result in zip(self._openers, results, strict=True)]
        return jax.tree_util.tree_unflatten(self._structure, leaves)
