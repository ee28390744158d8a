"""Copies, pickles, saved states, and what is left of an optimizer that is gone."""

from __future__ import annotations

import copy
import gc
import io
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
    same_on_all_ranks,
    scalar,
)
from torch_optimizer_checks.order import MEAN, loss_of, weight


def _adam(model: Any, distributed: bool) -> Any:
    import torch

    import syrtos.torch as hvd

    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if distributed:
        hvd.DistributedOptimizer(optimizer, model.named_parameters(), groups=2)
    return optimizer


def _reload(both: Any) -> Any:
    import torch

    file = io.BytesIO()
    torch.save(both, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@check
def copies_and_pickles_train_on() -> None:
    x, y = batches(20)
    plain = network()
    fit(plain, _adam(plain, False), x, y)
    for duplicate in (
        copy.deepcopy,
        lambda both: pickle.loads(pickle.dumps(both)),
        _reload,
    ):
        model = network()
        optimizer = _adam(model, True)
        fit(model, optimizer, mine(x)[:10], mine(y)[:10])
        halfway = flat(model.parameters())
        twin, its_optimizer = duplicate((model, optimizer))
        assert type(its_optimizer) is type(optimizer)
        assert its_optimizer._parameter_names == {p: n for n, p in twin.named_parameters()}
        assert its_optimizer._syrtos.reducer.groups() == optimizer._syrtos.reducer.groups()
        fit(twin, its_optimizer, mine(x)[10:], mine(y)[10:])
        assert_close(twin.parameters(), plain.parameters())
        assert same_on_all_ranks(twin.parameters())
        assert (flat(model.parameters()) == halfway).all()
        # The copy reduces during backward, as the original does.
        for m, o in ((twin, its_optimizer), (model, optimizer)):
            o.zero_grad()
            m(mine(x)[0]).sum().backward()
            assert o._syrtos.reducer.is_open
            o.step()


@check
def a_copy_keeps_its_settings() -> None:
    import syrtos.torch as hvd

    w, optimizer = weight(passes=2, op=hvd.Sum)
    twin = pickle.loads(pickle.dumps(optimizer))
    settings = twin._syrtos.reducer.settings
    assert settings.op == hvd.Sum
    assert settings.process_set is hvd.global_process_set
    (its,) = twin.param_groups[0]["params"]
    for _ in range(2):
        loss_of(its).backward()
    twin.step()
    assert its.item() == -2 * 2 * MEAN
    assert w.item() == 0.0


@check
def states_go_between_plain_and_distributed() -> None:
    x, y = batches(20)
    plain = network()
    reference = _adam(plain, False)
    fit(plain, reference, x, y)
    for first, second in ((True, False), (False, True)):
        model = network()
        optimizer = _adam(model, first)
        share = (mine(x), mine(y)) if first else (x, y)
        fit(model, optimizer, share[0][:10], share[1][:10])
        saved = _reload((model.state_dict(), optimizer.state_dict()))
        assert saved[1].keys() == reference.state_dict().keys()
        other = network(seed=2)
        other.load_state_dict(saved[0])
        its_optimizer = _adam(other, second)
        its_optimizer.load_state_dict(saved[1])
        share = (mine(x), mine(y)) if second else (x, y)
        fit(other, its_optimizer, share[0][10:], share[1][10:])
        assert_close(other.parameters(), plain.parameters())


@check
def loading_a_state_forgets_what_is_under_way() -> None:
    import torch

    import syrtos.torch as hvd

    w, optimizer = weight()
    saved = copy.deepcopy(optimizer.state_dict())
    loss_of(w).backward()
    optimizer.load_state_dict(saved)
    optimizer.zero_grad()
    hvd.allreduce(torch.zeros(1))  # comes after the dropped reduction, whose name is free then
    loss_of(w).backward()
    optimizer.step()
    assert w.item() == -MEAN


@check
def an_optimizer_that_is_gone_leaves_no_hook() -> None:
    import torch

    import syrtos.torch as hvd

    w = scalar()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([w], lr=1.0))
    del optimizer
    gc.collect()
    if hvd.rank() == 0:  # on its own, so nothing may wait for the other rank
        loss_of(w).backward()
        loss_of(w).backward()
        assert w.grad.item() == 2.0
    hvd.barrier()


@check
def optimizers_outlive_the_engine() -> None:
    import syrtos.torch as hvd

    w, optimizer = weight()
    loss_of(w).backward()
    hvd.shutdown()
    hvd.init()
    w.grad = None
    loss_of(w).backward()
    optimizer.step()
    assert w.item() == -MEAN


@check
def an_own_class_of_optimizer_stays_what_it_is() -> None:
    import torch

    import syrtos.torch as hvd
    from torch_optimizer_checks.halving import Halving

    w = scalar()
    optimizer = Halving([w], factor=0.5)
    optimizer.note = "kept"
    wrapped = hvd.DistributedOptimizer(optimizer, [("w", w)])
    assert isinstance(wrapped, Halving)
    assert wrapped.note == "kept"
    assert wrapped.kind == "halving"
    loss_of(w).backward()
    assert wrapped.step() == "stepped"
    assert w.item() == -MEAN * 0.5
    twin = pickle.loads(pickle.dumps(wrapped))
    (its,) = twin.param_groups[0]["params"]
    twin.zero_grad()
    loss_of(its).backward()
    twin.step()
    assert its.item() == -MEAN
    assert isinstance(twin, torch.optim.Optimizer)
