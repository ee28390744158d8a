"""torch.compile around the model, the step, and the optimizer."""

from __future__ import annotations

from typing import Any

from torch_optimizer_checks import (
    assert_close,
    batches,
    check,
    fit,
    mine,
    network,
    same_on_all_ranks,
)


def _fit_compiled(what: str, model: Any, optimizer: Any, x: Any, y: Any) -> None:
    import torch

    def loss_and_backward(inputs: Any, targets: Any) -> None:
        torch.nn.functional.mse_loss(model(inputs), targets).backward()

    def whole(inputs: Any, targets: Any) -> None:
        loss_and_backward(inputs, targets)
        optimizer.step()

    def compile_(function: Any) -> Any:
        return torch.compile(function, backend="aot_eager")

    if what == "model":
        fit(compile_(model), optimizer, x, y)
        return
    step: Any = optimizer.step
    backward: Any = loss_and_backward
    if what == "backward":
        backward = compile_(loss_and_backward)
    if what == "optimizer":
        step = compile_(lambda: optimizer.step())
    if what == "whole step":
        backward, step = compile_(whole), lambda: None
    for inputs, targets in zip(x, y, strict=True):
        optimizer.zero_grad()
        backward(inputs, targets)
        step()


@check
def compiled_training_equals_one_process() -> None:
    import torch

    import syrtos.torch as hvd

    x, y = batches(6)
    plain = network()
    fit(plain, torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9), x, y)
    for what in ("model", "backward", "optimizer", "whole step"):
        torch._dynamo.reset()
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        _fit_compiled(what, model, optimizer, mine(x), mine(y))
        assert_close(model.parameters(), plain.parameters())
        assert same_on_all_ranks(model.parameters())


@check
def compiled_and_wrapped() -> None:
    import torch

    import syrtos.torch as hvd

    x, y = batches(6)

    def make() -> Any:
        torch.manual_seed(1)
        return torch.nn.Sequential(
            torch.nn.Linear(8, 16),
            torch.nn.Tanh(),
            torch.nn.BatchNorm1d(16),
            torch.nn.Linear(16, 1),
        ).requires_grad_(True)

    results = []
    for order in ("wrap outside", "compile outside", "eager"):
        torch._dynamo.reset()
        model = make()
        model[2].momentum = 0.0  # the statistics of a rank are its own, but must not part
        if order == "wrap outside":
            used = hvd.wrap(torch.compile(model, backend="aot_eager"))
        elif order == "compile outside":
            used = torch.compile(hvd.wrap(model), backend="aot_eager")
        else:
            used = hvd.wrap(model)
        fit(used, torch.optim.SGD(model.parameters(), lr=0.05), mine(x), mine(y))
        assert same_on_all_ranks(model.parameters())
        results.append(list(model.parameters()))
    assert_close(results[0], results[2], 1e-6)
    assert_close(results[1], results[2], 1e-6)
