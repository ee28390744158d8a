"""Backward, step, synchronize and zero_grad in all orders, with values by hand."""

from __future__ import annotations

import warnings
from typing import Any

from torch_optimizer_checks import (
    assert_close,
    batches,
    check,
    mine,
    raises,
    same_on_all_ranks,
    scalar,
)

MEAN = 1.5  # of rank + 1 over two ranks


def weight(passes: int = 1, **options: Any) -> tuple[Any, Any]:
    """A weight of 0, and an optimizer that subtracts its gradient."""
    import torch

    import syrtos.torch as hvd

    w = scalar()
    sgd = torch.optim.SGD([w], lr=1.0)
    return w, hvd.DistributedOptimizer(sgd, [("w", w)], backward_passes_per_step=passes, **options)


def loss_of(w: Any) -> Any:
    """A loss whose derivative is the rank + 1."""
    import syrtos.torch as hvd

    return (w * (hvd.rank() + 1)).sum()


@check
def local_accumulation_over_epochs() -> None:
    w, optimizer = weight(passes=2)
    for passes, expected in ((2, -2 * MEAN), (1, -3 * MEAN), (2, -5 * MEAN)):
        for _ in range(passes):
            loss_of(w).backward()
        optimizer.step()
        assert w.item() == expected
        optimizer.zero_grad()
    loss_of(w).backward()
    loss_of(w).backward()
    with raises(AssertionError, "backward_passes_per_step", '"w"'):
        loss_of(w).backward()
    optimizer.synchronize()
    optimizer.set_backward_passes_per_step(3)
    assert optimizer.backward_passes_per_step == 3
    optimizer.zero_grad()
    for _ in range(3):
        loss_of(w).backward()
    optimizer.step()
    assert w.item() == -8 * MEAN


@check
def the_mean_is_clipped() -> None:
    import torch

    import syrtos.torch as hvd

    w = torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([w], lr=1.0), [("w", w)])
    gradient = torch.tensor([[3.0, 0.0], [0.0, 4.0]][hvd.rank()])
    (w * gradient).sum().backward()
    optimizer.synchronize()
    assert torch.equal(w.grad, torch.tensor([1.5, 2.0]))
    torch.nn.utils.clip_grad_norm_([w], 1.0)
    with optimizer.skip_synchronize():
        optimizer.step()
    assert torch.allclose(w.detach(), torch.tensor([-0.6, -0.8]), atol=1e-6)
    assert same_on_all_ranks([w])


class Pair:
    """Two models whose parameters have the same names, and their optimizers."""

    def __init__(self, distributed: bool, prefixes: bool = False) -> None:
        import torch

        import syrtos.torch as hvd

        torch.manual_seed(5)
        self.models = [torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)]
        self.optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in self.models]
        if distributed:
            for prefix, model, optimizer in zip("gd", self.models, self.optimizers, strict=True):
                named = model.named_parameters(prefix=prefix if prefixes else "")
                assert hvd.DistributedOptimizer(optimizer, list(named)) is optimizer

    def loss(self, x: Any, *used: int) -> Any:
        for i in used:
            x = self.models[i](x)
        return x.square().mean()

    def weights(self) -> list[Any]:
        return [p for m in self.models for p in m.parameters()]


@check
def two_models_with_equal_names_in_turn() -> None:
    x, _ = batches(10, 8, 3)
    ours, plain = Pair(True), Pair(False)
    for pair, inputs in ((ours, mine(x)), (plain, x)):
        for batch in inputs:
            for i, optimizer in enumerate(pair.optimizers):
                optimizer.zero_grad()
                pair.loss(batch, i).backward()
                optimizer.step()
    assert_close(ours.weights(), plain.weights())
    assert same_on_all_ranks(ours.weights())


@check
def two_models_in_one_backward() -> None:
    x, _ = batches(10, 8, 3)
    ours, plain = Pair(True, prefixes=True), Pair(False)
    for pair, inputs in ((ours, mine(x)), (plain, x)):
        for batch in inputs:
            for optimizer in pair.optimizers:
                optimizer.zero_grad()
            pair.loss(batch, 0, 1).backward()
            for optimizer in pair.optimizers:
                optimizer.step()
    assert_close(ours.weights(), plain.weights())

    ours = Pair(True)
    with raises(ValueError, '"allreduce.(weight|bias)"', "different names"):
        ours.loss(mine(x)[0], 0, 1).backward()
    # The one whose gradients are under way can go on, and then the other.
    for optimizer in reversed(ours.optimizers):
        optimizer.synchronize()
        optimizer.zero_grad()
    ours.loss(mine(x)[1], 0).backward()
    ours.optimizers[0].step()
    assert same_on_all_ranks(ours.weights())


@check
def zero_grad_and_backward_out_of_order() -> None:
    w, optimizer = weight()
    loss_of(w).backward()
    with raises(AssertionError, "step", "synchronize", "no_sync"):
        optimizer.zero_grad()
    optimizer.synchronize()
    optimizer.zero_grad()
    assert w.grad is None
    loss_of(w).backward()
    optimizer.step()
    assert w.item() == -MEAN

    w, optimizer = weight()
    loss = loss_of(w)
    loss.backward(retain_graph=True)
    with raises(ValueError, "backward_passes_per_step=1"):
        loss.backward()
    optimizer.synchronize()

    w, optimizer = weight(passes=2)
    loss = loss_of(w)
    loss.backward(retain_graph=True)
    loss.backward()
    optimizer.step()
    assert w.item() == -2 * MEAN

    w, optimizer = weight(passes=2)
    loss_of(w).backward()
    optimizer.zero_grad(set_to_none=False)  # nothing is under way yet
    assert w.grad.item() == 0.0
    loss_of(w).backward()
    loss_of(w).backward()
    optimizer.step()
    assert w.item() == -2 * MEAN


@check
def schedulers_do_not_warn() -> None:
    import torch

    import syrtos.torch as hvd

    for manual in (False, True):
        for before in (False, True):
            w = scalar()
            optimizer = torch.optim.SGD([w], lr=0.4)
            if not before:
                optimizer = hvd.DistributedOptimizer(optimizer, [("w", w)])
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            if before:
                optimizer = hvd.DistributedOptimizer(optimizer, [("w", w)])
            assert isinstance(optimizer, torch.optim.Optimizer)
            positions = []
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for _ in range(3):
                    optimizer.zero_grad()
                    loss_of(w).backward()
                    if manual:
                        optimizer.synchronize()
                        with optimizer.skip_synchronize():
                            optimizer.step()
                    else:
                        optimizer.step()
                    scheduler.step()
                    plateau.step(1.0)
                    positions.append(w.item())
            expected = [-0.4 * MEAN, -0.6 * MEAN, -0.7 * MEAN]
            assert_close([torch.tensor(positions)], [torch.tensor(expected)], 1e-6)


@check
def unequal_numbers_of_batches_end_with_join() -> None:
    import syrtos.torch as hvd

    w, optimizer = weight()
    steps = (5, 8)[hvd.rank()]
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(w).backward()
        optimizer.step()
    assert hvd.join() == 1
    # While one rank is away, the mean still divides by both.
    assert w.item() == (-5 * MEAN, -5 * MEAN - 3 * 2 / 2)[hvd.rank()]
    hvd.broadcast_parameters([("w", w)], root_rank=1)
    assert w.item() == -5 * MEAN - 3


@check
def a_step_after_synchronize_warns() -> None:
    w, optimizer = weight()
    loss_of(w).backward()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    assert len(caught) == 1
    text = "optimizer.step() called without optimizer.skip_synchronize()"
    assert text in str(caught[0].message)
    assert w.item() == -MEAN
    # Nothing is left of it in the next step.
    optimizer.zero_grad()
    loss_of(w).backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
    assert w.item() == -2 * MEAN


@check
def backward_without_communication() -> None:
    w, optimizer = weight()
    with optimizer.no_sync():
        loss_of(w).backward()
        loss_of(w).backward()
        own = w.grad.item()
        optimizer.zero_grad()  # allowed, since nothing is under way
        loss_of(w).backward()
    assert own in (2.0, 4.0)
    loss_of(w).backward()
    optimizer.step()
    assert w.item() == -2 * MEAN
    optimizer.zero_grad()
    with optimizer.no_sync():
        loss_of(w).backward()
    optimizer.step()
    assert w.item() == -3 * MEAN
    # A gradient under way must not be added to, here neither.
    optimizer.zero_grad()
    loss_of(w).backward()
    with optimizer.no_sync(), raises(ValueError, "being reduced already"):
        loss_of(w).backward()
    optimizer.synchronize()


@check
def sums_in_place_of_means() -> None:
    import syrtos.torch as hvd

    w, optimizer = weight(op=hvd.Sum)
    loss_of(w).backward()
    optimizer.step()
    assert w.item() == -2 * MEAN
    optimizer.zero_grad()
    loss = optimizer.step(lambda: (loss_of(w).backward(), loss_of(w).item())[1])
    assert w.item() == -4 * MEAN
    assert loss == -2 * MEAN * 2 * MEAN  # both losses, at the old weight


@check
def another_optimizer_takes_the_parameters_over() -> None:
    import torch

    import syrtos.torch as hvd

    w, first = weight()
    second = hvd.DistributedOptimizer(torch.optim.SGD([w], lr=1.0), [("w", w)])
    loss_of(w).backward()
    second.step()
    assert w.item() == -MEAN
    # The old one has no hooks any more, but its step reduces all the same.
    second.zero_grad()
    loss_of(w).backward()
    second.synchronize()
    second.zero_grad()
    with second.no_sync():
        loss_of(w).backward()
    first.step()
    assert w.item() == -2 * MEAN


@check
def hooks_of_torch_run_once() -> None:
    import torch

    calls = []
    w, optimizer = weight()
    optimizer.register_step_pre_hook(lambda *_: calls.append(("pre", w.grad.item())))
    optimizer.register_step_post_hook(lambda *_: calls.append(("post", w.item())))
    loss_of(w).backward()
    optimizer.step()
    assert calls == [("pre", MEAN), ("post", -MEAN)]
    assert type(optimizer).__name__ == "SGD"
    assert isinstance(optimizer, torch.optim.SGD)
    assert repr(optimizer).startswith("SGD (")
