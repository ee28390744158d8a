"""Hooks on parameters, called when backward has added to a gradient; and kinds of gradients."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

import torch

__all__ = ["Hooks", "can_have_gradient", "densified", "is_sparse_rows", "no_rows"]


class Listener(Protocol):
    """What hooks call."""

    def announce(self, index: int) -> None:
        """Note that backward has added to the gradient of parameter number `index`."""
        ...


#: The hook on each parameter, by identity. One at a time: an optimizer that is made for the same
#: parameters later takes them over, so that each gradient is reduced once.
_present: dict[int, Any] = {}


def _release(mine: dict[int, Any]) -> None:
    for key, handle in mine.items():
        handle.remove()
        if _present.get(key) is handle:
            del _present[key]


class Hooks:
    """The hooks of one listener; they neither keep it alive nor outlive it.

    Parameters
    ----------
    listener : Listener
        Who is told.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = weakref.ref(listener)
        self._mine: dict[int, Any] = {}
        weakref.finalize(listener, _release, self._mine).atexit = False

    def put(self, parameter: Any, index: int) -> None:
        """Put a hook on a parameter, in place of one that is there.

        Parameters
        ----------
        parameter : torch.Tensor
            A parameter, frozen or not. One that is no leaf gets none: its gradient is reduced at
            the end of the round.
        index : int
            What to tell the listener.
        """
        if not parameter.is_leaf:
            return
        present = _present.pop(id(parameter), None)
        if present is not None:
            present.remove()
        trained = parameter.requires_grad
        parameter.requires_grad_(True)  # else torch refuses the hook
        handle = parameter.register_post_accumulate_grad_hook(_hook(self._listener, index))
        parameter.requires_grad_(trained)
        self._mine[id(parameter)] = _present[id(parameter)] = handle


def _hook(listener: weakref.ref[Listener], index: int) -> Any:
    def tell(parameter: Any) -> None:
        alive = listener()
        if alive is not None:
            alive.announce(index)

    # Under compiled autograd the hook is run, not traced.
    return torch.compiler.disable(tell)


def can_have_gradient(parameter: Any) -> bool:
    """Whether autograd knows gradients of such a tensor."""
    return bool(parameter.is_floating_point() or parameter.is_complex())


def is_sparse_rows(gradient: Any) -> bool:
    """Whether a gradient holds some rows of the parameter, as an embedding's does."""
    return bool(gradient.layout == torch.sparse_coo and gradient.sparse_dim() == 1)


def densified(gradient: Any) -> Any:
    """Return a sparse gradient as a dense tensor."""
    if not is_sparse_rows(gradient):
        return gradient.to_dense()
    # Not to_dense(): torch 2.13 loses a single row of one column, if its memory is expanded.
    dense = torch.zeros(gradient.shape, dtype=gradient.dtype)
    return dense.index_add_(0, gradient._indices()[0], gradient._values())


def no_rows(parameter: Any) -> Any:
    """Return a sparse gradient of zeros."""
    return torch.sparse_coo_tensor(
        torch.empty((1, 0), dtype=torch.int64),
        torch.empty((0, *parameter.shape[1:]), dtype=parameter.dtype),
        parameter.shape,
    )
