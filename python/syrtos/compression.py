"""What travels in place of a floating-point tensor: itself, float16 or bfloat16.

Reductions of the narrow dtypes are summed in float32 by the core; only the values on the wire, and
the result, are rounded.
"""

from __future__ import annotations

from typing import Any

from syrtos.errors import BackendUnavailableError

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compressor:
    """Narrows a tensor before a collective and widens the result.

    Subclass it with your own static `compress` and `decompress` to send something else, or only set
    `wire_dtype` to let the front end do the cast.
    """

    #: NumPy's name of the dtype on the wire; None leaves the work to `compress` and `decompress`.
    wire_dtype: str | None = None

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return what is sent, and a context for `decompress`."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the result as the caller of the collective shall see it."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor itself."""
        return tensor


def numpy_dtype(name: str) -> Any:
    """Return a NumPy dtype by name, with ml_dtypes' help for "bfloat16".

    Raises
    ------
    BackendUnavailableError
        bfloat16 without the package ml_dtypes.
    """
    import numpy as np

    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise BackendUnavailableError(
            "bfloat16 needs the package ml_dtypes: pip install ml_dtypes, or use Compression.fp16."
        ) from None
    return np.dtype(ml_dtypes.bfloat16)


def _narrow(array: Any, wire: str) -> tuple[Any, Any]:
    dtype: Any = getattr(array, "dtype", None)
    if not hasattr(array, "astype") or getattr(dtype, "kind", None) not in ("f", "V"):
        return array, None
    target = numpy_dtype(wire)
    if dtype == target or (dtype.kind == "V" and dtype.name != "bfloat16"):
        return array, None
    return array.astype(target), dtype


def _widen(array: Any, dtype: Any) -> Any:
    return array if dtype is None else array.astype(dtype)


class FP16Compressor(Compressor):
    """Sends floating-point tensors as float16."""

    wire_dtype = "float16"

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return a float16 copy of a floating-point array, and its dtype."""
        return _narrow(tensor, "float16")

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the result in the dtype that `compress` saw."""
        return _widen(tensor, ctx)


class BF16Compressor(Compressor):
    """Sends floating-point tensors as bfloat16."""

    wire_dtype = "bfloat16"

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return a bfloat16 copy of a floating-point array, and its dtype."""
        return _narrow(tensor, "bfloat16")

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the result in the dtype that `compress` saw."""
        return _widen(tensor, ctx)


class Compression:
    """The choices for the argument ``compression``."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
