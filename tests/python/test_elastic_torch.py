"""`syrtos.torch.elastic` on two ranks: all in one launch, since importing torch takes long."""

from __future__ import annotations

from typing import Any

import pytest
from ranks import run_ranks

from syrtos.errors import HorovodInternalError, InvalidRequestError

pytestmark = pytest.mark.torch


def same(left: Any, right: Any) -> bool:
    """Whether two nests of dictionaries, lists and tensors are equal."""
    import torch

    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def parts_of(rank: int) -> dict[str, Any]:
    """Return a model with optimizer, schedule and scaler, different on each rank."""
    import torch

    torch.manual_seed(rank)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (rank + 1), momentum=0.9)
    parts = {
        "model": model,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.StepLR(optimizer, step_size=1 + rank, gamma=0.5),
        "scaler": torch.amp.GradScaler("cpu", init_scale=2.0 ** (3 + rank)),
    }
    step(parts)
    return parts


def step(parts: dict[str, Any]) -> None:
    import torch

    parts["optimizer"].zero_grad()
    parts["model"](torch.ones(4, 3)).square().sum().backward()
    parts["optimizer"].step()
    parts["scheduler"].step()


def dicts(parts: dict[str, Any]) -> dict[str, Any]:
    import copy

    return {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}


def check_state(rank: int) -> None:
    import torch

    import syrtos.torch as hvd

    parts = parts_of(rank)
    of_rank_0 = dicts(parts_of(0))
    assert rank == 0 or not same(dicts(parts), of_rank_0)
    state = hvd.elastic.TorchState(**parts, epoch=10 + rank)
    state.sync()
    assert same(dicts(parts), of_rank_0)
    assert state.epoch == 10
    for _ in range(2):  # momentum buffers are changed in place: the copy must not be
        step(parts)
        state.epoch += 1
        state.restore()
        assert same(dicts(parts), of_rank_0)
        assert state.epoch == 10
    assert state.model is parts["model"]
    assert state.optimizer is parts["optimizer"]
    step(parts)
    state.epoch = 11
    state.commit()
    committed = dicts(parts)
    assert not same(committed, of_rank_0)
    step(parts)
    state.restore()
    assert same(dicts(parts), committed)
    assert state.epoch == 11

    other = torch.nn.Linear(3, 2)
    wanted = {key: value.clone() for key, value in other.state_dict().items()}
    state.model = other  # from now on this one, saved as it is
    torch.nn.init.zeros_(other.weight)
    state.restore()
    assert same(dict(other.state_dict()), wanted)


def check_sampler(rank: int, size: int) -> None:
    import random

    import syrtos.torch as hvd

    for shuffle, length in ((False, 10), (True, 11), (True, 1), (False, 0)):
        data = list(range(length))
        sampler = hvd.elastic.ElasticSampler(data, shuffle=shuffle, seed=5)
        sampler.set_epoch(2)
        order = list(data)
        if shuffle:
            random.Random(5 + 2).shuffle(order)
        padded = (order * size)[: -(-length // size) * size]
        assert list(sampler) == padded[rank::size]
        assert list(sampler) == padded[rank::size]  # it can be walked again
        assert len(sampler) == sampler.num_samples == len(padded) // size
        assert (sampler.total_size, sampler.remaining_indices) == (len(padded), order)

    sampler = hvd.elastic.ElasticSampler(list(range(12)), shuffle=False)
    state = hvd.elastic.TorchState(sampler=sampler)
    sampler.record_batch(0, 2)
    assert sampler.processed_num == 2 * size
    assert len(sampler) == 12 // size  # shared out anew by a reset only
    state.commit()
    sampler.record_batch(1, 1)
    state.restore()
    assert sampler.state_dict() == {"epoch": 0, "processed_num": 2 * size}
    left = list(range(12))[2 * size :]
    assert (sampler.remaining_indices, list(sampler)) == (left, left[rank::size])
    if rank == 1:
        sampler.record_batch(1, 1)  # what rank 0 has recorded counts
    state.sync()
    assert sampler.processed_num == 2 * size
    sampler.set_epoch(1)
    assert (sampler.epoch, sampler.processed_num, len(sampler)) == (1, 0, 12 // size)


def check_run(rank: int) -> None:
    """Training with a failure ends where training without one does."""
    import torch

    import syrtos.torch as hvd

    def train(fail_at: int) -> dict[str, Any]:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
            named_parameters=model.named_parameters(),
        )
        batches = torch.arange(24.0).reshape(8, 3).div(24)
        starts = 0

        @hvd.elastic.run
        def loop(state: Any) -> None:
            nonlocal starts
            starts += 1
            while state.batch < 8:
                optimizer.zero_grad()
                model(batches[state.batch] * (rank + 1)).square().sum().backward()
                if rank == 1 and state.batch == fail_at and starts == 1:
                    raise HorovodInternalError("planted")
                optimizer.step()
                state.batch += 1
                if state.batch % 2 == 0:
                    state.commit()

        loop(hvd.elastic.TorchState(model, optimizer, batch=0))
        assert starts == (1 if fail_at < 0 else 2)
        return dict(model.state_dict())

    smooth, failed = train(-1), train(5)
    assert same(smooth, failed)


def check_errors() -> None:
    import torch

    import syrtos.torch as hvd

    model = torch.nn.Linear(1, 1)
    state = hvd.elastic.TorchState(model)
    with pytest.raises(InvalidRequestError, match="TorchState.model = an object of type NoneType"):
        state.model = None
    with pytest.raises(InvalidRequestError, match=r"TorchState\(save=\.\.\.\)"):
        hvd.elastic.TorchState(save=model)
    sampler = hvd.elastic.ElasticSampler([1, 2])
    with pytest.raises(InvalidRequestError, match="'processed_num' is missing"):
        sampler.load_state_dict({"epoch": 1})


def check_registry() -> None:
    import syrtos.torch as hvd
    from syrtos.torch.elastic import state as states

    class Counter:
        value = 1

    class CounterHandler(states.StateHandler):
        def __init__(self, value: Counter) -> None:
            super().__init__(value)
            self.save()

        def save(self) -> None:
            self.saved = self.value.value

        def restore(self) -> None:
            self.value.value = self.saved

        def sync(self) -> None:
            self.value.value = hvd.broadcast_object(self.value.value)

    before = states.get_handler_registry()
    states.set_handler_registry([*before, (Counter, CounterHandler)])
    try:
        counter = Counter()
        counter.value = 5 + hvd.rank()
        state = hvd.elastic.TorchState(counter=counter)
        counter.value = 9
        state.restore()
        assert counter.value == 5 + hvd.rank()
        state.sync()
        assert counter.value == 5
    finally:
        states.set_handler_registry(before)


def torch_ranks() -> None:
    import syrtos.torch as hvd

    hvd.init()
    check_state(hvd.rank())
    check_sampler(hvd.rank(), hvd.size())
    check_errors()
    check_registry()
    check_run(hvd.rank())


def test_states_and_samplers_of_torch():
    run_ranks(torch_ranks, 2, timeout=120)
