"""The requests of a round, under names that no two rounds of a process share."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from syrtos import _ops
from syrtos._handle import Handle
from syrtos._kinds import ReduceOp
from syrtos.errors import InvalidRequestError
from syrtos.torch.adapter import ADAPTER
from syrtos.torch.compression import Compression
from syrtos.torch.optimizer.arguments import Settings
from syrtos.torch.sparse import sparse_allreduce_async

__all__ = ["OrderError", "Sender"]


class OrderError(InvalidRequestError, AssertionError):
    """Backward, step, synchronize and zero_grad came in an order that would spoil gradients."""


#: Names of gradients under way, by process set, and whose they are. Two models may use the same
#: names, but not in the same backward.
_under_way: dict[tuple[int, str], weakref.ref[Sender]] = {}


class Sender:
    """Starts the reductions of one reducer.

    Parameters
    ----------
    settings : Settings
        How to reduce.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._claimed: list[tuple[int, str]] = []

    def _claim(self, name: str) -> str:
        key = self._settings.process_set.group(), name
        owner = _under_way.get(key)
        if owner is not None and owner() not in (None, self):
            raise OrderError(
                f'The gradient of another parameter with the same name, "{name}", is being '
                "reduced: backward has reached the parameters of two optimizers. Give them "
                'different names, such as named_parameters=[("generator." + n, p) for n, p in '
                "model.named_parameters()], or detach() one model from the other."
            )
        _under_way[key] = weakref.ref(self)
        self._claimed.append(key)
        return name

    def release(self) -> None:
        """Let others use the names of this round."""
        for key in self._claimed:
            _under_way.pop(key, None)
        self._claimed.clear()

    def dense(self, name: str, tensors: Sequence[Any], *, grouped: bool) -> Handle:
        """Start the reduction of dense tensors; in place unless they are compressed.

        Raises
        ------
        OrderError
            The name is in use for another reducer's gradient.
        """
        settings = self._settings
        return _ops.allreduce_async(
            ADAPTER,
            list(tensors) if grouped else tensors[0],
            name=self._claim("allreduce." + name),
            op=settings.op,
            prescale_factor=1.0 / settings.gradient_predivide_factor,
            postscale_factor=settings.gradient_predivide_factor,
            process_set=settings.process_set,
            in_place=settings.compression is Compression.none,
            grouped=grouped,
            compression=settings.compression,
        )

    def sparse(self, name: str, value: Any) -> Callable[[], Any]:
        """Start the reduction of a sparse tensor, and return what waits for it."""
        settings = self._settings
        name = self._claim(f"allreduce.{name}.sparse")
        return sparse_allreduce_async(value, name, settings.op, settings.process_set)

    def found(self, name: str, entries: list[float], dtype: Any) -> Handle:
        """Start the exchange of who has what; an entry of the result is 0 if nobody has it.

        Parameters
        ----------
        name : str
            Of the first parameter.
        entries : list of float
            1 for what this rank has, else 0.
        dtype : torch.dtype
            That of the gradients, so that it can share their message.
        """
        settings = self._settings
        return _ops.allreduce_async(
            ADAPTER,
            torch.tensor(entries, dtype=dtype if dtype.is_floating_point else torch.float32),
            name=self._claim(f"allreduce.{name}.found"),
            op=ReduceOp.Sum if settings.op == ReduceOp.Adasum else settings.op,
            prescale_factor=1.0 / settings.gradient_predivide_factor,
            postscale_factor=settings.gradient_predivide_factor,
            process_set=settings.process_set,
            in_place=True,
        )

    def loss(self, name: str, loss: Any) -> Any:
        """Return a loss reduced as the gradients are, of the type it had."""
        is_tensor = isinstance(loss, torch.Tensor)
        value = loss.detach().clone() if is_tensor else torch.tensor(loss, dtype=torch.float64)
        reduced = _ops.allreduce_async(
            ADAPTER,
            value,
            name=f"allreduce.{name}.loss",
            op=self._settings.op,
            process_set=self._settings.process_set,
        ).wait()
        return reduced if is_tensor else reduced.item()
