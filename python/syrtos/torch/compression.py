"""What travels in place of a floating-point tensor: itself, float16 or bfloat16.

The casts are torch's own, so that gradients pass through them.
"""

from __future__ import annotations

from typing import Any

import torch

from syrtos.compression import Compressor, NoneCompressor
from syrtos.torch.adapter import dtype_of

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]

_WIDER = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _narrow(tensor: Any, wire: str) -> tuple[Any, Any]:
    dtype = tensor.dtype
    if dtype not in _WIDER or dtype == dtype_of(wire):
        return tensor, None
    return tensor.to(dtype_of(wire)), dtype


def _widen(tensor: Any, dtype: Any) -> Any:
    return tensor if dtype is None else tensor.to(dtype)


def compress(chosen: Any, tensor: Any) -> tuple[Any, Any]:
    """Return what is sent, and a context for `decompress`.

    Parameters
    ----------
    chosen : type
        A `Compressor`; one with a `wire_dtype` leaves the cast to the front end.
    tensor : torch.Tensor
        Any.
    """
    wire = getattr(chosen, "wire_dtype", None)
    pair: tuple[Any, Any] = chosen.compress(tensor) if wire is None else _narrow(tensor, wire)
    return pair


def decompress(chosen: Any, tensor: Any, context: Any) -> Any:
    """Return a result as the caller shall see it; arguments as in `compress`."""
    wire = getattr(chosen, "wire_dtype", None)
    return chosen.decompress(tensor, context) if wire is None else _widen(tensor, context)


class FP16Compressor(Compressor):
    """Sends floating-point tensors as float16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return a float16 copy of a floating-point tensor, and its dtype."""
        return _narrow(tensor, "float16")

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the result in the dtype that `compress` saw."""
        return _widen(tensor, ctx)


class BF16Compressor(Compressor):
    """Sends floating-point tensors as bfloat16."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return a bfloat16 copy of a floating-point tensor, and its dtype."""
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
