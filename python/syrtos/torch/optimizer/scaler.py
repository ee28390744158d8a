"""Gradient scalers see reduced gradients, so that all ranks skip a step or none does.

``torch.amp.GradScaler`` divides the gradients of an optimizer by the scale, and skips the step if
one of them is not finite. It must not do so with one rank's own gradients: the ranks would decide
differently, and their scales and weights would part. Neither the optimizer nor the user's code has
a say before ``scaler.unscale_(optimizer)`` or ``scaler.step(optimizer)``, so these two methods of
the class are wrapped, once. For optimizers that are not distributed nothing changes. A subclass
with an ``unscale_`` of its own, which does not call that of the class, is to be used as with
Horovod: ``optimizer.synchronize()`` first, and the step under ``optimizer.skip_synchronize()``.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from syrtos.torch.optimizer.mixin import Distributed

__all__ = ["teach_scalers"]


@functools.cache
def teach_scalers() -> None:
    """Let gradient scalers reduce the gradients of distributed optimizers first."""
    scaler: Any = torch.amp.GradScaler
    unscale, take_step = scaler.unscale_, scaler.step

    @functools.wraps(unscale)
    def unscale_(self: Any, optimizer: Any) -> Any:
        if isinstance(optimizer, Distributed) and self.is_enabled():
            optimizer._syrtos.before_unscale()
        return unscale(self, optimizer)

    @functools.wraps(take_step)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(optimizer, Distributed) or not self.is_enabled():
            return take_step(self, optimizer, *args, **kwargs)
        # Optimizers that unscale inside of their step are not passed to unscale_.
        optimizer._syrtos.before_unscale()
        try:
            return take_step(self, optimizer, *args, **kwargs)
        finally:
            optimizer._syrtos.after_scaler_step()

    scaler.unscale_, scaler.step = unscale_, step
