"""`wrap`: gradients of all ranks are there when backward returns."""

from __future__ import annotations

import copy
import pickle
from typing import Any

from torch_optimizer_checks import (
    assert_close,
    batches,
    check,
    fit,
    flat,
    mine,
    network,
    raises,
    same_on_all_ranks,
)


@check
def wrapped_training_equals_one_process() -> None:
    import torch

    import syrtos.torch as hvd

    x, y = batches(50)
    for options in ({}, {"groups": 2}, {"gradient_predivide_factor": 2.0}):
        plain = network()
        fit(plain, torch.optim.Adam(plain.parameters(), lr=0.01), x, y)
        model = network(seed=1 + hvd.rank())  # the other rank's start is overwritten
        wrapped = hvd.wrap(model, **options)
        assert wrapped.module is model
        assert list(wrapped.state_dict()) == ["module." + key for key in model.state_dict()]
        assert_close(model.parameters(), network().parameters(), 0.0)
        fit(wrapped, torch.optim.Adam(model.parameters(), lr=0.01), mine(x), mine(y))
        assert_close(model.parameters(), plain.parameters())
        assert same_on_all_ranks(model.parameters())


@check
def gradients_are_there_after_backward() -> None:
    import torch

    import syrtos.torch as hvd

    model = torch.nn.Linear(2, 1, bias=False)
    wrapped = hvd.wrap(model)
    wrapped(torch.ones(1, 2) * (hvd.rank() + 1)).sum().backward()
    assert torch.equal(model.weight.grad, torch.full((1, 2), 1.5))
    # With what is there already, as in one process.
    wrapped(torch.ones(1, 2) * (hvd.rank() + 1)).sum().backward()
    assert torch.equal(model.weight.grad, torch.full((1, 2), 3.0))
    model.zero_grad()
    with wrapped.no_sync():
        wrapped(torch.ones(1, 2) * (hvd.rank() + 1)).sum().backward()
    assert torch.equal(model.weight.grad, torch.full((1, 2), 1.0 + hvd.rank()))
    wrapped(torch.ones(1, 2) * (hvd.rank() + 1)).sum().backward()
    assert torch.equal(model.weight.grad, torch.full((1, 2), 3.0))
    model.zero_grad()
    total = hvd.wrap(model, op=hvd.Sum)
    total(torch.ones(1, 2) * (hvd.rank() + 1)).sum().backward()
    assert torch.equal(model.weight.grad, torch.full((1, 2), 3.0))


@check
def layers_used_by_some_ranks_only() -> None:
    import torch

    import syrtos.torch as hvd

    class Choosing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(2, 2, bias=False) for _ in range(3))
            self.free = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: Any, used: int | None) -> dict[str, Any]:
            hidden = x if used is None else self.layers[used](x)
            return {"hidden": hidden, "free": self.free * 2}

    torch.manual_seed(3)
    model = Choosing()
    wrapped = hvd.wrap(model)
    wrapped(torch.ones(1, 2), hvd.rank())["hidden"].sum().backward()
    for layer in model.layers[:2]:
        assert torch.equal(layer.weight.grad, torch.full((2, 2), 0.5))
    assert model.layers[2].weight.grad is None
    assert model.free.grad is None
    # One rank's loss depends on no parameter that the other's does, and on none but one.
    model.zero_grad()
    out = wrapped(torch.ones(1, 2), 2 if hvd.rank() == 0 else None)
    (out["hidden"].sum() if hvd.rank() == 0 else out["free"].sum()).backward()
    assert torch.equal(model.layers[2].weight.grad, torch.full((2, 2), 0.5))
    assert model.free.grad.item() == 1.0


@check
def an_output_that_needs_no_parameter_of_its_own() -> None:
    import torch

    import syrtos.torch as hvd

    class Skipping(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: Any, skip: bool) -> Any:
            return x * 2 if skip else x * self.w

    model = Skipping()
    wrapped = hvd.wrap(model)
    before = torch.nn.Parameter(torch.ones(1))
    wrapped(before, hvd.rank() == 0).sum().backward()
    assert model.w.grad.item() == 0.5


@check
def buffers_follow_the_first_rank() -> None:
    import torch

    import syrtos.torch as hvd

    x = torch.full((4, 3), float(hvd.rank() + 1)) + torch.arange(4.0)[:, None]
    for follow in (True, False):
        model = torch.nn.BatchNorm1d(3)
        model.running_mean.fill_(float(hvd.rank()))
        wrapped = hvd.wrap(model, broadcast_buffers=follow)
        assert model.running_mean.abs().max() == 0
        wrapped(x)
        wrapped(x)
        means = hvd.allgather(model.running_mean[:1])
        # Momentum 0.1, means 2.5 and 3.5. The first rank's, after one step and after two:
        first, second = 0.25, 0.9 * 0.25 + 0.25
        own = 0.9 * first + 0.35 if follow else 0.9 * 0.35 + 0.35
        assert torch.allclose(means, torch.tensor([second, own]), atol=1e-6)
        if hvd.rank() == 1:  # neither of these communicates
            with torch.no_grad():
                wrapped(x)
            wrapped.eval()
            wrapped(x)
        hvd.barrier()


@check
def two_wrapped_models_in_one_backward() -> None:
    import torch

    import syrtos.torch as hvd

    x, y = batches(10)
    results = []
    for distributed in (True, False):
        first, second = network(seed=3), network(seed=4)
        used = [hvd.wrap(first), hvd.wrap(second)] if distributed else [first, second]
        optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.05)
        share = (mine(x), mine(y)) if distributed else (x, y)
        for step, (inputs, targets) in enumerate(zip(*share, strict=True)):
            optimizer.zero_grad()
            # Ranks come to the models in different orders, and one leaves a model out.
            order = used[::-1] if step % 2 and hvd.rank() else used
            outputs = sum(model(inputs) for model in order)
            torch.nn.functional.mse_loss(outputs, targets).backward()
            optimizer.step()
        results.append([*first.parameters(), *second.parameters()])
    assert_close(*results)
    assert same_on_all_ranks(results[0])


@check
def a_scaler_and_a_wrapped_model() -> None:
    import torch

    import syrtos.torch as hvd

    model = network()
    wrapped = hvd.wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    x, y = batches(4)
    x[2, -1] = float("inf")
    before = None
    for step, (inputs, targets) in enumerate(zip(mine(x), mine(y), strict=True)):
        optimizer.zero_grad()
        scaler.scale(torch.nn.functional.mse_loss(wrapped(inputs), targets)).backward()
        before = flat(model.parameters())
        scaler.step(optimizer)
        scaler.update()
        assert bool((flat(model.parameters()) == before).all()) == (step == 2)
    assert scaler.get_scale() == 32.0
    assert same_on_all_ranks(model.parameters())


@check
def copies_of_a_wrapped_model() -> None:
    import torch

    import syrtos.torch as hvd

    x, y = batches(5)
    wrapped = hvd.wrap(network(), groups=1)
    for twin in (copy.deepcopy(wrapped), pickle.loads(pickle.dumps(wrapped))):
        fit(twin, torch.optim.SGD(twin.parameters(), lr=0.1), mine(x), mine(y))
        plain = network()
        fit(plain, torch.optim.SGD(plain.parameters(), lr=0.1), x, y)
        assert_close(twin.module.parameters(), plain.parameters())
        assert same_on_all_ranks(twin.parameters())
    assert_close(wrapped.parameters(), network().parameters(), 0.0)


@check
def a_wrapped_model_and_a_distributed_optimizer() -> None:
    import torch

    import syrtos.torch as hvd

    x, y = batches(10)
    model = network()
    wrapped = hvd.wrap(model)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), op=hvd.Sum)
    fit(wrapped, optimizer, mine(x), mine(y))
    plain = network()
    fit(plain, torch.optim.SGD(plain.parameters(), lr=0.2), x, y)
    assert_close(model.parameters(), plain.parameters())  # reduced once


@check
def what_cannot_be_wrapped() -> None:
    import torch

    import syrtos.torch as hvd

    with raises(TypeError, "Module, not list"):
        hvd.wrap([])
    with raises(ValueError, "DistributedOptimizer"):
        hvd.wrap(torch.nn.Linear(1, 1), op=hvd.Adasum)
    with raises(hvd.HorovodInternalError, "broadcast", "weight"):
        hvd.wrap(torch.nn.Linear(2 + hvd.rank(), 1))
