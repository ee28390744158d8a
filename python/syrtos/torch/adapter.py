"""Torch tensors as the core sees them: addresses and sizes, no copy for contiguous ones.

Nothing here needs torch's headers or libraries at build time, so one build serves all versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from syrtos.adapter import View, dtype_number
from syrtos.errors import InvalidRequestError

if TYPE_CHECKING:
    from syrtos import _core

__all__ = ["ADAPTER", "TorchAdapter", "dtype_of"]


def dtype_of(name: str) -> Any:
    """Return torch's dtype by NumPy's name, such as "bfloat16"."""
    return getattr(torch, name)


@cache
def _number_of(dtype: Any) -> int:
    """Return the core's dtype number; "opaque" for what is moved as bytes and never reduced."""
    return dtype_number(str(dtype).removeprefix("torch."))


def _check(tensor: Any, what: str) -> None:
    """Raise unless this is a plain tensor in the memory of this process."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"{what}: give a torch.Tensor, not {type(tensor).__name__}; "
            "torch.as_tensor() makes one of numbers, lists and arrays."
        )
    if tensor.layout != torch.strided:
        raise TypeError(
            f"{what}: a tensor of layout {tensor.layout} has no plain memory to send. Use "
            "tensor.to_dense(), or sparse_allreduce_async for a sparse one."
        )
    if tensor.device.type != "cpu":
        raise InvalidRequestError(
            f"{what}: the tensor is on device {tensor.device}, but this build of Syrtos moves CPU "
            "tensors only. Use tensor.cpu(), and move the result back."
        )
    if tensor.is_quantized:
        raise TypeError(
            f"{what}: a quantized tensor ({tensor.dtype}) would lose its scale and zero point. "
            "Use tensor.dequantize(), or tensor.int_repr()."
        )


def _check_writable(tensor: Any, what: str) -> None:
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    if not tensor.is_contiguous() and any(stride == 0 and size > 1 for stride, size in pairs):
        raise InvalidRequestError(
            f"{what}: elements of an expanded tensor share memory, so it cannot be changed in "
            "place. Use tensor.contiguous(), or the function without the underscore."
        )


def _view_of(tensor: Any, target: Any) -> View:
    dtype = tensor.dtype
    return View(
        _number_of(dtype),
        tensor.element_size(),
        tuple(tensor.shape),
        tensor.data_ptr(),
        tensor,
        target,
    )


class TorchAdapter:
    """`syrtos.adapter.TensorAdapter` for CPU tensors of torch 2.4 and newer.

    Notes
    -----
    Zero copies for contiguous tensors; others are copied, and in-place results are written back.
    dtypes that the core does not reduce (float8, complex32) are moved as bytes.
    """

    name = "torch"

    def view(self, tensor: Any, *, in_place: bool, what: str) -> View:
        """Return the tensor's memory, or that of a contiguous copy."""
        _check(tensor, what)
        if in_place:
            _check_writable(tensor, what)
        if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
            return _view_of(tensor, tensor)
        # A conjugate or negated view is a flag on the original's memory, to be carried out first.
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
        return _view_of(plain, tensor)

    def empty_like(self, view: View) -> View:
        """Return a new contiguous tensor of the same shape and dtype."""
        return _view_of(torch.empty(view.shape, dtype=view.owner.dtype, device="cpu"), view.target)

    def from_buffer(
        self, buffer: _core.OwnedBuffer | None, shape: tuple[int, ...], like: View
    ) -> Any:
        """Return a tensor over the engine's memory, which lives as long as the tensor."""
        dtype = like.owner.dtype
        if buffer is None or 0 in shape:
            return torch.empty(shape, dtype=dtype, device="cpu")
        return torch.frombuffer(buffer, dtype=torch.uint8).view(dtype).reshape(shape)

    def finish(self, view: View) -> Any:
        """Return the output tensor."""
        return view.owner

    def write_back(self, view: View) -> Any:
        """Copy the result into the user's tensor unless it is there already."""
        target = view.target
        if view.owner is not target:
            with torch.no_grad():
                target.copy_(view.owner)
        elif not target.is_inference():
            # Autograd shall notice if it needs the overwritten values.
            torch.autograd.graph.increment_version(target)
        return target

    def cast(self, view: View, wire: str) -> View:
        """Return a copy in the dtype on the wire."""
        dtype = dtype_of(wire)
        if view.owner.dtype == dtype:
            return view
        return _view_of(view.owner.detach().to(dtype), None)

    def uncast(self, tensor: Any, view: View) -> Any:
        """Return a result in the dtype of the user's tensor."""
        return tensor.to(view.owner.dtype)

    def is_floating(self, view: View) -> bool:
        """Whether the dtype is a real floating-point one that the core can reduce."""
        return view.owner.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)

    def integers(self, values: Sequence[int]) -> Any:
        """Return a vector of int64."""
        return torch.tensor(values, dtype=torch.int64, device="cpu")


ADAPTER = TorchAdapter()
