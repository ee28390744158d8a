"""When an optimizer's gradients are reduced: before a step, in a closure, or when told to."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from syrtos.torch.optimizer.reducer import OrderError, Reducer

__all__ = ["Exchange"]


class _Done(enum.Enum):
    """Who has reduced the gradients that the optimizer holds."""

    NOBODY = enum.auto()
    USER = enum.auto()
    SCALER = enum.auto()


class Exchange:
    """What a distributed optimizer carries.

    Parameters
    ----------
    reducer : Reducer
        Of its parameters.

    Notes
    -----
    Whether a call communicates depends on the calls before it, not on which gradients this rank
    happens to have; so ranks that make the same calls never wait for each other in vain.
    """

    def __init__(self, reducer: Reducer) -> None:
        self.reducer = reducer
        self._done = _Done.NOBODY
        self._skip = False

    def synchronize(self) -> None:
        """Reduce the gradients now, on the user's behalf."""
        self.reducer.finish()
        self._done = _Done.USER

    def skip_synchronize(self) -> AbstractContextManager[None]:
        """Return a context whose steps take the gradients as they are."""
        return self._skipping()

    @contextmanager
    def _skipping(self) -> Iterator[None]:
        before, self._skip = self._skip, True
        try:
            yield
        finally:
            self._skip = before

    def no_sync(self) -> AbstractContextManager[None]:
        """Return a context whose backward passes only add to this rank's gradients."""
        return self.reducer.pause()

    def forget(self) -> None:
        """Drop an unfinished round."""
        self.reducer.reset()
        self._done = _Done.NOBODY

    def before_zero_grad(self) -> None:
        """Refuse to clear gradients that are under way.

        Raises
        ------
        OrderError
            They are.
        """
        if self.reducer.is_open:
            raise OrderError(
                "zero_grad() came after backward() and before step() or synchronize(), while the "
                "gradients are being reduced. Call step() or synchronize() first; backward passes "
                "whose gradients shall be thrown away go into `with optimizer.no_sync():`."
            )
        self.forget()

    def before_step(self) -> None:
        """Reduce the gradients for a step without closure, unless it is done or not wanted."""
        done, self._done = self._done, _Done.NOBODY
        if self._skip or done is _Done.SCALER:
            return
        if done is _Done.USER and not self.reducer.is_open:
            warnings.warn(
                "optimizer.step() called without optimizer.skip_synchronize() after "
                "optimizer.synchronize(): the gradients are reduced a second time. Put the step "
                "into `with optimizer.skip_synchronize():`.",
                stacklevel=5,  # past the optimizer's step and what keeps this one eager
            )
        self.reducer.finish()

    def reducing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure for a step: its gradients and its loss are those of all ranks."""
        self._done = _Done.NOBODY
        if self._skip:
            return closure

        def closure_of_all_ranks() -> Any:
            loss = closure()
            done, self._done = self._done, _Done.NOBODY
            if done is _Done.NOBODY:
                self.reducer.finish()
            return self.reducer.mean_of(loss)

        return closure_of_all_ranks

    def after_step(self) -> None:
        """Do what is left when the optimizer's own step has been taken."""

    def before_unscale(self) -> None:
        """Reduce the gradients before a gradient scaler looks at them, unless it has been done."""
        if not self._skip and (self._done is _Done.NOBODY or self.reducer.is_open):
            self.reducer.finish()
            self._done = _Done.SCALER

    def after_scaler_step(self) -> None:
        """Note that a scaler's step is over, whether it was taken or skipped."""
        self._done = _Done.NOBODY
