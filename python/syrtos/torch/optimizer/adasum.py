"""The optimizer for op=Adasum: each rank takes its own step, and the changes are combined.

Adasum decides from the directions of the ranks' vectors how much of each to take. It does so best
with what an optimizer makes of a gradient, so the weights' changes are reduced, not the gradients;
the state of the optimizer is each rank's own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from syrtos import _ops
from syrtos._kinds import ReduceOp
from syrtos.torch.adapter import ADAPTER
from syrtos.torch.optimizer.exchange import Exchange
from syrtos.torch.optimizer.reducer import OrderError, Reducer
from syrtos.torch.optimizer.slots import Slot

__all__ = ["AdasumExchange", "AdasumReducer"]


class AdasumReducer(Reducer):
    """Reduces what a step has changed, in place of gradients."""

    #: The weights before the step, by the slots' indices.
    before: dict[int, Any]

    def value(self, slot: Slot) -> Any:
        """Return the change of a parameter; None if it had no gradient on this rank."""
        if slot.param.grad is None:
            return None
        return slot.param.detach() - self.before[slot.index]

    def store(self, slot: Slot, result: Any) -> None:
        """Change the parameter as all ranks have agreed."""
        slot.param.copy_(self.before[slot.index] + result)


class AdasumExchange(Exchange):
    """What an optimizer for Adasum carries.

    Parameters
    ----------
    reducer : AdasumReducer
        Of its parameters; it needs no hooks.
    """

    reducer: AdasumReducer

    def synchronize(self) -> None:
        """Do nothing: there is nothing to reduce before the step."""

    def skip_synchronize(self) -> AbstractContextManager[None]:
        """Refuse, since the step and the reduction cannot be parted.

        Raises
        ------
        OrderError
            Always.
        """
        raise OrderError(
            "skip_synchronize() is not possible with op=Adasum: it reduces what the step changes, "
            "so there is no step without it. Clip gradients before step(), without synchronize()."
        )

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a context that changes nothing: backward passes never communicate."""
        return nullcontext()

    def before_step(self) -> None:
        """Remember the weights."""
        if self.reducer.takes_part():
            self.reducer.before = {
                slot.index: slot.param.detach().clone() for slot in self.reducer.slots
            }

    def reducing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Remember the weights; the closure stays this rank's own."""
        self.before_step()
        return closure

    def after_step(self) -> None:
        """Combine the changes of all ranks."""
        try:
            self.reducer.finish()
        finally:
            self.reducer.before = {}

    def before_unscale(self) -> None:
        """Let all ranks skip a step in which the gradient of any rank is not finite."""
        reducer = self.reducer
        if not reducer.takes_part():
            return
        grads = [slot.param.grad for slot in reducer.slots if slot.param.grad is not None]
        finite = all(bool(torch.isfinite(_values(grad)).all()) for grad in grads)
        everywhere = _ops.allreduce_async(
            ADAPTER,
            torch.tensor([float(finite)]),
            name=f"allreduce.{reducer.slots[0].name}.finite",
            op=ReduceOp.Min,
            process_set=reducer.settings.process_set,
        ).wait()
        if finite and grads and not bool(everywhere):
            _values(grads[0]).fill_(float("inf"))


def _values(grad: Any) -> Any:
    return grad.detach() if grad.layout == torch.strided else grad.coalesce().values()
