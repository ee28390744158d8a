"""Parameters and optimizer state from one rank to the others."""

from __future__ import annotations

import inspect
from typing import Any

from torch_checks import RANKS, check, raises


@check
def parameters_of_every_form_become_the_roots() -> None:
    import torch

    import syrtos.torch as hvd

    def model(seed: int) -> Any:
        torch.manual_seed(seed)
        layers = torch.nn.Sequential(
            torch.nn.Conv2d(2, 3, 3), torch.nn.BatchNorm2d(3), torch.nn.Linear(4, 2)
        )
        layers.to(memory_format=torch.channels_last)
        layers[1].num_batches_tracked += seed
        layers[2].to(torch.bfloat16)
        return layers

    forms = (
        lambda m: m.state_dict(),
        lambda m: list(m.state_dict().items()),
        lambda m: m.named_parameters(),
        lambda m: m.parameters(),
        lambda m: list(m.parameters()),
    )
    for number, form in enumerate(forms):
        for root in range(RANKS):
            mine, expected = model(hvd.rank() + 5), model(root + 5)
            hvd.broadcast_parameters(form(mine), root_rank=root)
            for name, tensor in expected.state_dict().items():
                got = mine.state_dict()[name]
                if number < 2 or name in dict(mine.named_parameters()):
                    assert torch.equal(got, tensor), name
            assert mine[0].weight.is_contiguous(memory_format=torch.channels_last)
            assert all(parameter.requires_grad for parameter in mine.parameters())


@check
def parameters_may_be_scalars_counters_and_objects() -> None:
    import torch

    import syrtos.torch as hvd

    me = hvd.rank()
    values = {
        "scalar": torch.tensor(me + 1.5),
        "count": torch.tensor([[me]]),
        "flags": torch.tensor([me == 0, True]),
        "slice": torch.full((4, 4), me + 1.0)[:, ::2],
        "empty": torch.zeros(0, 3),
        "extra": {"epoch": me},
        "nothing": None,
    }
    scalar = values["scalar"]
    hvd.broadcast_parameters(values, root_rank=1)
    assert values["scalar"] is scalar
    assert scalar.item() == 2.5
    assert values["count"].tolist() == [[1]]
    assert values["flags"].tolist() == [False, True]
    assert values["slice"].eq(2.0).all()
    assert values["extra"] == {"epoch": 1}
    assert values["nothing"] is None
    hvd.broadcast_parameters({}, root_rank=0)
    for wrong in (torch.ones(2), "weights", 3):
        raises(ValueError, lambda w=wrong: hvd.broadcast_parameters(w, 0), "broadcast_parameters")
    raises(TypeError, lambda: hvd.broadcast_parameters([("x", 1.0)], 0), '"x"', "torch.Tensor")


@check
def parameters_that_differ_are_named_on_all_ranks() -> None:
    import torch

    import syrtos.torch as hvd

    me = hvd.rank()
    error = hvd.HorovodInternalError
    values = {"a": torch.ones(2), "kernel": torch.ones(2 + me)}
    raises(error, lambda: hvd.broadcast_parameters(values, 0), '"kernel"', "(2,)", "(3,)")
    values = {"a": torch.ones(2), f"only on {me}": torch.ones(2)}
    raises(error, lambda: hvd.broadcast_parameters(values, 0), "only on 0", "only on 1")
    values = {"a": torch.ones(2)} if me else {}
    raises(error, lambda: hvd.broadcast_parameters(values, 0), "ranks"[:4])
    values = {"a": torch.ones(2)} if me else {"a": torch.ones(2), "b": torch.ones(2)}
    raises(error, lambda: hvd.broadcast_parameters(values, 0), "1 tensor", "2 tensors")


def options(optimizer: Any) -> list[tuple[str, type, Any]]:
    group = optimizer.param_groups[0]
    return [(key, type(value), value) for key, value in group.items() if key != "params"]


@check
def optimizer_options_become_the_roots_and_keep_their_types() -> None:
    import torch

    import syrtos.torch as hvd

    def make(rank: int) -> list[Any]:
        weight = [torch.nn.Parameter(torch.ones(2))]
        lr = 0.1 * (rank + 1)
        made = [
            torch.optim.Adamax(weight, lr=lr, betas=(0.9 - 0.1 * rank, 0.99)),
            torch.optim.SGD(weight, lr=lr, momentum=0.5 + 0.1 * rank, nesterov=rank == 0),
            torch.optim.AdamW(weight, lr=lr, foreach=None, fused=None),
            torch.optim.Rprop(weight, etas=(0.5, 1.2 + rank)),
            torch.optim.Adam(weight, lr=torch.tensor(lr)),
        ]
        made[0].param_groups[0]["lr"] = lr * 3
        return made

    for root in range(RANKS):
        for mine, roots in zip(make(hvd.rank()), make(root), strict=True):
            hvd.broadcast_optimizer_state(mine, root_rank=root)
            assert options(mine) == options(roots)
            for optimizer in (mine, roots):
                for parameter in optimizer.param_groups[0]["params"]:
                    parameter.grad = torch.tensor([0.5, -2.0])
                optimizer.step()
            for a, b in zip(
                mine.param_groups[0]["params"], roots.param_groups[0]["params"], strict=True
            ):
                assert torch.equal(a, b)


def trained(optimizer_class: Any, settings: dict[str, Any], seed: int, steps: int) -> Any:
    """A model with a frozen first layer, and its optimizer over all parameters."""
    import torch

    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    model[0].requires_grad_(False)
    optimizer = optimizer_class(model.parameters(), **settings)
    x = torch.randn(8, 4)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
    return model, optimizer


def every_optimizer() -> list[tuple[Any, dict[str, Any]]]:
    import torch

    rows: list[tuple[Any, dict[str, Any]]] = []
    for name in sorted(vars(torch.optim)):
        one = getattr(torch.optim, name)
        if not inspect.isclass(one) or not issubclass(one, torch.optim.Optimizer):
            continue
        # SparseAdam wants sparse gradients, Muon matrices only: neither fits this model.
        if name not in ("Optimizer", "SparseAdam", "Muon"):
            rows.append((one, {"lr": 0.05}))
    rows += [
        (torch.optim.Adam, {"amsgrad": True, "capturable": False}),
        (torch.optim.RMSprop, {"momentum": 0.9, "centered": True}),
        (torch.optim.LBFGS, {"history_size": 3, "max_iter": 2}),
    ]
    return rows


def assert_same_state(mine: Any, expected: Any, label: str) -> None:
    import torch

    if torch.is_tensor(expected):
        assert torch.equal(mine, expected), label
        assert mine.dtype == expected.dtype, label
    elif isinstance(expected, dict):
        assert mine.keys() == expected.keys(), label
        for key in expected:
            assert_same_state(mine[key], expected[key], f"{label}.{key}")
    elif isinstance(expected, list | tuple):
        assert len(mine) == len(expected), label
        for number, (a, b) in enumerate(zip(mine, expected, strict=True)):
            assert_same_state(a, b, f"{label}[{number}]")
    else:
        assert type(mine) is type(expected), label
        assert mine == expected, label


@check
def optimizer_state_of_the_root_alone_reaches_all_ranks() -> None:
    import torch

    import syrtos.torch as hvd

    for one, settings in every_optimizer():
        for root in range(RANKS):
            steps = 3 if hvd.rank() == root else 0
            model, optimizer = trained(one, settings, seed=hvd.rank(), steps=steps)
            frozen = model[0].weight.clone()
            expected_model, expected = trained(one, settings, seed=root, steps=3)
            before = model[1].weight.clone()
            hvd.broadcast_optimizer_state(optimizer, root_rank=root, model=model)
            assert_same_state(optimizer.state_dict(), expected.state_dict(), one.__name__)
            assert torch.equal(model[0].weight, frozen), one
            assert torch.equal(model[1].weight, before), "weights are no optimizer state"
            assert model[0].weight.grad is None
            hvd.broadcast_parameters(model.state_dict(), root_rank=root)
            x = torch.ones(3, 4)

            def closure(model: Any = model, optimizer: Any = optimizer, x: Any = x) -> Any:
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                return loss

            optimizer.step(closure)
            expected.step(lambda m=expected_model, o=expected: closure(m, o))
            assert torch.equal(model[1].weight, expected_model[1].weight), one


@check
def optimizer_state_that_the_root_lacks_is_dropped() -> None:
    import torch

    import syrtos.torch as hvd

    me = hvd.rank()
    model, optimizer = trained(torch.optim.Adam, {"lr": 0.1}, seed=0, steps=2 * me)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert optimizer.state_dict()["state"] == {}
    # Horovod leaves gradients of zeros behind, and its scripts use them.
    model, optimizer = trained(torch.optim.SGD, {"lr": 0.1}, seed=0, steps=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert model[0].weight.grad is None
    assert model[1].weight.grad.eq(0).all()
    table = torch.nn.Embedding(5, 2, sparse=True)
    for optimizer, model in (
        (torch.optim.SparseAdam(table.parameters()), None),
        (torch.optim.SGD(table.parameters(), lr=0.1), table),
    ):
        table.weight.grad = None
        hvd.broadcast_optimizer_state(optimizer, root_rank=0, model=model)
        assert table.weight.grad.is_sparse
        table(torch.tensor([1, 1])).sum().backward()
        assert table.weight.grad.is_sparse
        assert table.weight.grad.to_dense().tolist() == [[0, 0], [2, 2], [0, 0], [0, 0], [0, 0]]
        optimizer.step()


@check
def optimizers_that_do_not_fit_are_told_on_all_ranks() -> None:
    import torch

    import syrtos.torch as hvd

    me = hvd.rank()
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(2 + me)]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    raises(
        ValueError,
        lambda: hvd.broadcast_optimizer_state(optimizer, root_rank=0),
        "broadcast_optimizer_state",
        "rank 1",
        "parameter group",
    )
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == 2.0
