"""Names, options and state: what the optimizer is given."""

from __future__ import annotations

import warnings
from typing import Any

from torch_optimizer_checks import (
    assert_close,
    batches,
    check,
    fit,
    mine,
    network,
    raises,
    same_on_all_ranks,
    scalar,
)


@check
def options_are_broadcast_with_their_types() -> None:
    import torch

    import syrtos.torch as hvd

    for root in (0, 1):
        for kind in ("Adamax", "SGD", "LBFGS"):
            w, r = scalar(1.0), hvd.rank()
            options: dict[str, Any] = {
                "Adamax": {"betas": (0.9 - 0.1 * r, 0.99)},
                "SGD": {"momentum": 0.5 + 0.1 * r, "nesterov": r == root},
                "LBFGS": {"max_iter": 3 + r},
            }[kind]
            optimizer = getattr(torch.optim, kind)([w], lr=0.1 * (r + 1), **options)
            optimizer = hvd.DistributedOptimizer(optimizer, [("w", w)])
            optimizer.param_groups[0]["lr"] *= 2
            hvd.broadcast_optimizer_state(optimizer, root_rank=root)
            group = {k: v for k, v in optimizer.param_groups[0].items() if k != "params"}
            everywhere = hvd.allgather_object(group)
            assert everywhere[0] == everywhere[1]
            assert group["lr"] == 0.2 * (root + 1)
            assert isinstance(group["lr"], float)
            if kind == "Adamax":
                assert group["betas"] == (0.9 - 0.1 * root, 0.99)
                assert isinstance(group["betas"], tuple)
            if kind == "SGD":
                assert group["nesterov"] is True

            def closure(w: Any = w, optimizer: Any = optimizer) -> Any:
                optimizer.zero_grad()
                loss = (w - 2.0).square().sum()
                loss.backward()
                return loss

            optimizer.step(closure)
            assert w.item() != 1.0
            assert same_on_all_ranks([w])


@check
def frozen_parameters_and_state_from_before() -> None:
    import torch

    import syrtos.torch as hvd

    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    model[0].requires_grad_(False)
    frozen = [p.clone() for p in model[0].parameters()]
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=None, fused=None)
    if hvd.rank() == 0:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().sum().backward()
            optimizer.step()
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    for p in model[1].parameters():
        assert optimizer.state[p]["step"].item() == 3
        assert same_on_all_ranks([optimizer.state[p]["exp_avg"], optimizer.state[p]["exp_avg_sq"]])
        assert optimizer.state[p]["exp_avg"].abs().max() > 0
    optimizer.zero_grad()
    model(torch.full((2, 4), float(hvd.rank()))).square().sum().backward()
    optimizer.step()
    assert same_on_all_ranks(model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(frozen, model[0].parameters(), strict=True))
    assert optimizer.param_groups[0]["foreach"] is None
    assert optimizer.param_groups[0]["fused"] is None


def _seven_parameters() -> list[Any]:
    import torch

    torch.manual_seed(4)
    return [torch.nn.Parameter(torch.randn(2)) for _ in range(7)]


def _five_steps(parameters: list[Any], optimizer: Any, factors: list[float]) -> None:
    for step in range(5):
        optimizer.zero_grad()
        loss = sum((p * p).sum() * (i + step + 1) for i, p in enumerate(parameters))
        (loss * sum(factors) / len(factors)).backward()
        optimizer.step()


@check
def unnamed_parameters_of_two_groups() -> None:
    import torch

    import syrtos.torch as hvd

    def groups(ps: list[Any]) -> list[dict[str, Any]]:
        return [{"params": ps[:3]}, {"params": ps[3:6], "lr": 0.002}]

    ours, plain = _seven_parameters(), _seven_parameters()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(groups(ours), lr=0.001))
    names = list(optimizer._parameter_names.values())
    assert len(set(names)) == 6
    assert hvd.broadcast_object(names) == names
    reference = torch.optim.SGD(groups(plain), lr=0.001)
    _five_steps(ours[:6], optimizer, [hvd.rank() + 1])
    _five_steps(plain[:6], reference, [1, 2])
    assert_close(ours, plain, 1e-6)
    optimizer.add_param_group({"params": [ours[6]], "lr": 0.003})
    reference.add_param_group({"params": [plain[6]], "lr": 0.003})
    _five_steps(ours, optimizer, [hvd.rank() + 1])
    _five_steps(plain, reference, [1, 2])
    assert_close(ours, plain, 1e-6)
    assert len(set(optimizer._parameter_names.values())) == 7


@check
def wrong_names_are_refused() -> None:
    import torch

    import syrtos.torch as hvd

    model = network()
    named = list(model.named_parameters())

    def wrap(names: Any) -> None:
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), names)

    with raises(ValueError, "no name for 1 param", r"number 3 of group 0 \(shape \(1,\)\)"):
        wrap(named[:-1])
    with raises(ValueError, "weight came twice"):
        wrap([("weight", named[0][1]), ("weight", named[1][1]), *named[2:]])
    with raises(ValueError, "pairs of a name"):
        wrap(model.parameters())
    with raises(ValueError, "pairs of a name"):
        wrap([(p, n) for n, p in named])


@check
def wrong_arguments_are_refused() -> None:
    import torch

    import syrtos.torch as hvd

    model = network()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"backward_passes_per_step": 0}, "backward_passes_per_step=0"),
        ({"num_groups": -1}, "num_groups=-1"),
        ({"groups": -2}, "groups=-2"),
        ({"groups": "a"}, "groups='a'"),
        ({"groups": [["a"]]}, "str in a list"),
        ({"groups": [[next(model.parameters())] * 2]}, "listed twice"),
        ({"gradient_predivide_factor": 2.0, "op": hvd.Sum}, "needs op=Average"),
        ({"gradient_predivide_factor": 0.0}, "more than 0"),
        ({"op": hvd.Max}, "Average, Sum or Adasum"),
    ]
    for options, text in wrong:
        with warnings.catch_warnings(), raises(ValueError, text):
            warnings.simplefilter("ignore")
            hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), **options)
    with raises(TypeError, "Optimizer, not Sequential"):
        hvd.DistributedOptimizer(model)
    with raises(TypeError, "process_set=3"):
        hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), process_set=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step = lambda: None
    with raises(ValueError, "step of this SGD has been replaced"):
        hvd.DistributedOptimizer(optimizer)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    with raises(ValueError, "distributed already"):
        hvd.DistributedOptimizer(optimizer)
    x, y = batches(3)
    fit(model, optimizer, mine(x), mine(y))
    assert same_on_all_ranks(model.parameters())


@check
def names_and_groups() -> None:
    import torch

    import syrtos.torch as hvd

    model = network()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters(), num_groups=3)
    assert [w.category for w in caught] == [DeprecationWarning]
    assert optimizer is sgd
    names = {p: n for n, p in model.named_parameters()}
    assert optimizer._parameter_names == names
    x, y = batches(3)
    fit(model, optimizer, mine(x), mine(y))
    assert same_on_all_ranks(model.parameters())
    # torch 2.6 and newer know names themselves.
    try:
        sgd = torch.optim.SGD(model.named_parameters(), lr=0.1)
    except TypeError:
        return
    assert hvd.DistributedOptimizer(sgd)._parameter_names == names
