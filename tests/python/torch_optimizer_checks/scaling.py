"""Gradient scalers, with the values of plain torch in one process."""

from __future__ import annotations

from typing import Any

from torch_optimizer_checks import (
    assert_close,
    batches,
    check,
    flat,
    mine,
    network,
    same_on_all_ranks,
)
from torch_optimizer_checks.order import MEAN, loss_of, weight

STEPS, BAD = 30, 7


class Scaled:
    """Training with a scaler; in one step a value is infinite in the last rank's share."""

    def __init__(self, how: str, distributed: bool, **arguments: Any) -> None:
        import torch

        import syrtos.torch as hvd

        self.how, self.distributed = how, distributed
        self.model = network()
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=0.02, momentum=0.9, **arguments
        )
        if distributed:
            hvd.DistributedOptimizer(self.optimizer, self.model.named_parameters())
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=10)

    def run(self) -> list[float]:
        """Take all steps; return the scales."""
        import torch

        x, y = batches(STEPS)
        x[BAD, -1, -1] = float("inf")
        if self.distributed:
            x, y = mine(x), mine(y)
        scales = []
        for inputs, targets in zip(x, y, strict=True):
            self.optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(self.model(inputs), targets)
            self.scaler.scale(loss).backward()
            self.step()
            self.scaler.update()
            scales.append(self.scaler.get_scale())
        return scales

    def step(self) -> None:
        import torch

        by_hand = self.how == "by hand" and self.distributed
        if by_hand:
            self.optimizer.synchronize()
        if self.how != "step only":
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        if by_hand:
            with self.optimizer.skip_synchronize():
                self.scaler.step(self.optimizer)
        else:
            self.scaler.step(self.optimizer)


@check
def scalers_agree_without_extra_calls() -> None:
    for how in ("step only", "unscale and clip", "by hand"):
        for arguments in ({}, {"fused": True}):
            ours, plain = Scaled(how, True, **arguments), Scaled(how, False, **arguments)
            scales = ours.run()
            assert scales == plain.run(), (how, arguments)
            assert scales[BAD] < scales[BAD - 1]
            assert flat(ours.model.parameters()).isfinite().all()
            assert_close(ours.model.parameters(), plain.model.parameters())
            assert same_on_all_ranks(ours.model.parameters())
            assert same_on_all_ranks(s["momentum_buffer"] for s in ours.optimizer.state.values())


@check
def scalers_and_sums() -> None:
    """A second reduction would show in a sum."""
    import torch

    import syrtos.torch as hvd

    w, optimizer = weight(op=hvd.Sum)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for expected in (-2 * MEAN, -4 * MEAN):
        optimizer.zero_grad()
        scaler.scale(loss_of(w)).backward()
        scaler.unscale_(optimizer)
        assert w.grad.item() == 2 * MEAN
        scaler.step(optimizer)
        scaler.update()
        assert w.item() == expected
    # A step that is not taken leaves nothing behind.
    optimizer.zero_grad()
    scaler.scale(loss_of(w)).backward()
    scaler.unscale_(optimizer)
    scaler.update()
    optimizer.zero_grad()
    loss_of(w).backward()
    optimizer.step()
    assert w.item() == -6 * MEAN


@check
def scalers_that_are_off_and_plain_optimizers() -> None:
    import torch

    import syrtos.torch as hvd

    w, optimizer = weight()
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    scaler.scale(loss_of(w)).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert w.item() == -MEAN
    if hvd.rank() == 1:  # alone
        w = torch.nn.Parameter(torch.zeros(1))
        plain = torch.optim.SGD([w], lr=1.0)
        scaler = torch.amp.GradScaler("cpu")
        scaler.scale(loss_of(w)).backward()
        scaler.step(plain)
        assert w.item() == -2.0
    hvd.barrier()


@check
def accumulation_with_a_scaler() -> None:
    import torch

    w, optimizer = weight(passes=3)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for _ in range(3):
        scaler.scale(loss_of(w)).backward()
    scaler.step(optimizer)
    scaler.update()
    assert w.item() == -3 * MEAN
