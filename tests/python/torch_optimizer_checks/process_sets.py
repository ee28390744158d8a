"""Optimizers and models of some ranks only; on three ranks."""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Iterator
from typing import Any

from torch_optimizer_checks import check_on_three, scalar
from torch_optimizer_checks.adasum import combined
from torch_optimizer_checks.order import loss_of


@contextlib.contextmanager
def _set_of(*ranks: int) -> Iterator[Any]:
    import syrtos.torch as hvd

    pair = hvd.add_process_set(ranks)
    try:
        yield pair
    finally:
        assert hvd.remove_process_set(pair)


@contextlib.contextmanager
def _of_two(**options: Any) -> Iterator[tuple[Any, Any, Any]]:
    import torch

    import syrtos.torch as hvd

    w = scalar()
    sgd = torch.optim.SGD([w], lr=1.0)
    with _set_of(0, 2) as pair:
        hvd.DistributedOptimizer(sgd, [("w", w)], process_set=pair, **options)
        yield w, sgd, pair


@check_on_three
def ranks_outside_train_alone() -> None:
    import syrtos.torch as hvd

    with _of_two() as (w, optimizer, _):
        for step in range(1, 4):
            optimizer.zero_grad()
            loss_of(w).backward()
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                optimizer.step()
            if hvd.rank() == 1:  # more often than the others
                loss_of(w).backward()
                loss_of(w).backward()
                optimizer.zero_grad()
            # Ranks 0 and 2 have gradients 1 and 3; rank 1 has 2.
            assert w.item() == -2.0 * step
        optimizer.zero_grad()
        for _ in range(2 if hvd.rank() == 1 else 1):
            loss_of(w).backward()
        optimizer.step()
        assert w.item() == (-10.0 if hvd.rank() == 1 else -8.0)


@check_on_three
def copies_know_their_process_set() -> None:
    with _of_two() as (_, optimizer, pair):
        twin = copy.deepcopy(optimizer)
        assert twin._syrtos.reducer.settings.process_set is pair
        for another in (twin, pickle.loads(pickle.dumps(optimizer))):
            (w,) = another.param_groups[0]["params"]
            loss_of(w).backward()
            another.step()
            assert w.item() == -2.0


@check_on_three
def adasum_of_two_ranks() -> None:
    import numpy as np

    import syrtos.torch as hvd

    with _of_two(op=hvd.Adasum) as (w, optimizer, _):
        loss_of(w).backward()
        optimizer.step()
        expected = -2.0 if hvd.rank() == 1 else combined([-1.0], [-3.0])[0]
        assert np.isclose(w.item(), expected, atol=1e-6)


@check_on_three
def wrapped_models_of_some_ranks() -> None:
    import torch

    import syrtos.torch as hvd

    with _set_of(1, 2) as pair:
        model = torch.nn.Linear(1, 1, bias=False)
        with torch.no_grad():
            model.weight.fill_(10.0 * hvd.rank())
        wrapped = hvd.wrap(model, process_set=pair)
        assert model.weight.item() == (0.0, 10.0, 10.0)[hvd.rank()]
        wrapped(torch.tensor([[hvd.rank() + 1.0]])).sum().backward()
        assert model.weight.grad.item() == (1.0, 2.5, 2.5)[hvd.rank()]
        everyone = hvd.wrap(torch.nn.Linear(1, 1, bias=False))
        (wrapped(torch.ones(1, 1)) + everyone(torch.ones(1, 1) * hvd.rank())).sum().backward()
        assert everyone.module.weight.grad.item() == 1.0


@check_on_three
def sparse_means_of_a_process_set() -> None:
    import torch

    import syrtos.torch as hvd

    with _set_of(0, 1) as pair:
        model = torch.nn.Embedding(4, 2, sparse=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        hvd.DistributedOptimizer(optimizer, model.named_parameters(), process_set=pair)
        model(torch.tensor([hvd.rank()])).sum().backward()
        optimizer.step()
        expected = torch.zeros(4, 2)
        if hvd.rank() == 2:
            expected[2] = 1.0
        else:
            expected[:2] = 0.5
        assert torch.equal(model.weight.grad.to_dense(), expected)
