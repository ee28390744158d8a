"""The optimizer for op=Adasum, against the formula."""

from __future__ import annotations

from typing import Any

from torch_optimizer_checks import check, raises, same_on_all_ranks


def combined(a: Any, b: Any) -> Any:
    """Adasum of two vectors."""
    import numpy as np

    a, b = np.asarray(a, "float64"), np.asarray(b, "float64")
    dot = (a * b).sum()
    return (1 - dot / (2 * (a * a).sum())) * a + (1 - dot / (2 * (b * b).sum())) * b


@check
def adasum_combines_the_changes_of_weights() -> None:
    import numpy as np
    import torch

    import syrtos.torch as hvd

    gradients = torch.randn(5, 2, 6, generator=torch.Generator().manual_seed(1))
    for kind, options in (("SGD", {"lr": 0.5, "momentum": 0.9}), ("Adam", {"lr": 0.1})):
        w = torch.nn.Parameter(torch.zeros(6))
        optimizer = hvd.DistributedOptimizer(
            getattr(torch.optim, kind)([w], **options), [("w", w)], op=hvd.Adasum
        )
        # The same in one process: an optimizer for each rank, put back to the common weights.
        twins = [torch.nn.Parameter(torch.zeros(6)) for _ in range(2)]
        plain = [getattr(torch.optim, kind)([twin], **options) for twin in twins]
        expected = np.zeros(6)
        for step in gradients:
            optimizer.zero_grad()
            (w * step[hvd.rank()]).sum().backward()
            optimizer.synchronize()  # allowed, and nothing
            optimizer.step()
            changes = []
            for twin, its_optimizer, gradient in zip(twins, plain, step, strict=True):
                twin.data = torch.tensor(expected, dtype=torch.float32)
                twin.grad = gradient.clone()
                its_optimizer.step()
                changes.append(twin.detach().double().numpy() - expected)
            expected = expected + combined(*changes)
            assert np.abs(w.detach().numpy() - expected).max() <= 1e-5
        assert same_on_all_ranks([w])
        with raises(AssertionError, "op=Adasum"):
            optimizer.skip_synchronize()


@check
def adasum_with_missing_gradients_and_closures() -> None:
    import torch

    import syrtos.torch as hvd

    a, b, c = (torch.nn.Parameter(torch.ones(2)) for _ in range(3))
    optimizer = torch.optim.SGD([a, b, c], lr=1.0)
    named = [("a", a), ("b", b), ("c", c)]
    optimizer = hvd.DistributedOptimizer(optimizer, named, op=hvd.Adasum)

    def closure() -> Any:
        optimizer.zero_grad()
        with optimizer.no_sync():
            loss = (a * torch.tensor([[2.0, 0.0], [0.0, 3.0]][hvd.rank()])).sum()
            if hvd.rank() == 0:
                loss = loss + b.sum()
            loss.backward()
        return loss

    loss = optimizer.step(closure)
    assert loss.item() == 2.0 + 2.0 if hvd.rank() == 0 else 3.0
    # Changes at right angles add up; one rank's alone counts in full.
    assert torch.equal(a.detach(), torch.tensor([-1.0, -2.0]))
    assert torch.equal(b.detach(), torch.zeros(2))
    assert torch.equal(c.detach(), torch.ones(2))
    assert b.grad is None or hvd.rank() == 0


@check
def adasum_and_a_scaler() -> None:
    import torch

    import syrtos.torch as hvd

    w = torch.nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([w], lr=1.0), [("w", w)], op=hvd.Adasum)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=100)
    at_right_angles = [torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])]
    for step in range(3):
        optimizer.zero_grad()
        factor = float("inf") if step == 1 and hvd.rank() == 1 else 1.0
        scaler.scale((w * at_right_angles[hvd.rank()]).sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 4.0
    assert torch.equal(w.detach(), torch.tensor([-2.0, -2.0]))
