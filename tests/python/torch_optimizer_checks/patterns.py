"""How training programs call such a library: own small stand-ins for their loops."""

from __future__ import annotations

import time
from typing import Any

from torch_optimizer_checks import (
    assert_close,
    batches,
    check,
    flat,
    mine,
    network,
    raises,
    same_on_all_ranks,
)


def _backward(model: Any, x: Any, y: Any) -> None:
    import torch

    model.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()


@check
def one_flat_gradient_is_reduced_and_cleaned() -> None:
    """All gradients as one vector: reduced, divided, made finite, and split again."""
    import torch

    import syrtos.torch as hvd

    x, y = batches(1)
    model = network()
    _backward(model, mine(x)[0], mine(y)[0])
    own = [p.grad.clone() for p in model.parameters()]
    if hvd.rank() == 1:
        own[0][0, 0], own[1][2], own[1][3] = float("nan"), float("inf"), -float("inf")
    vector = torch.cat([grad.flatten() for grad in own])
    hvd.allreduce_(vector, op=hvd.Sum, name="flat")
    vector /= hvd.size()
    torch.nan_to_num(vector, nan=0.0, posinf=1e5, neginf=-1e5, out=vector)
    parts = vector.split([grad.numel() for grad in own])
    expected = []
    for i, grad in enumerate(own):
        grads = hvd.allgather(grad.unsqueeze(0), name=f"all of {i}")
        mean = (grads[0] + grads[1]) / 2
        expected.append(torch.nan_to_num(mean, nan=0.0, posinf=1e5, neginf=-1e5))
    assert parts[0][0] == 0.0
    assert parts[1][2] == 1e5
    assert parts[1][3] == -1e5
    for part, grad, whole in zip(parts, own, expected, strict=True):
        assert torch.equal(part.reshape(grad.shape), whole)
    assert same_on_all_ranks([vector])


def _different(model: Any) -> list[str]:
    """Names of the tensors that are not those of rank 0."""
    import torch

    import syrtos.torch as hvd

    found = []
    for name, tensor in model.state_dict().items():
        if not torch.equal(hvd.broadcast(tensor, 0, name=f"check {name}"), tensor):
            found.append(name)
    return sorted({name for names in hvd.allgather_object(found) for name in names})


@check
def replicas_are_compared_and_repaired() -> None:
    import torch

    import syrtos.torch as hvd

    model = network()
    assert _different(model) == []
    if hvd.rank() == 1:
        with torch.no_grad():
            model[2].bias += 1e-6
    assert _different(model) == ["2.bias"]
    for name, tensor in model.state_dict().items():
        hvd.broadcast_(tensor, 0, name=f"repair {name}")
    assert _different(model) == []


class Engine:
    """A training loop with three ways to keep its ranks together."""

    def __init__(self, reduce_type: str, sync_steps: int = 1) -> None:
        import torch

        import syrtos.torch as hvd

        self.reduce_type, self.sync_steps = reduce_type, sync_steps
        self.model = network()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        if reduce_type == "grad":
            hvd.DistributedOptimizer(self.optimizer, self.model.named_parameters())

    def step(self, number: int, x: Any, y: Any) -> None:
        import torch

        import syrtos.torch as hvd

        self.optimizer.zero_grad()
        torch.nn.functional.mse_loss(self.model(x), y).backward()
        if self.reduce_type == "grad_explicit":
            grads = [p.grad for p in self.model.parameters()]
            vector = torch.cat([grad.flatten() for grad in grads])
            hvd.allreduce_(vector, op=hvd.Sum)
            vector /= hvd.size()
            parts = vector.split([grad.numel() for grad in grads])
            for grad, part in zip(grads, parts, strict=True):
                grad.copy_(part.reshape(grad.shape))
        self.optimizer.step()
        if self.reduce_type == "param" and (number + 1) % self.sync_steps == 0:
            for p in self.model.parameters():
                hvd.allreduce_(p.data, op=hvd.Average)


@check
def gradients_or_parameters_are_averaged() -> None:
    import torch

    x, y = batches(9)
    engines = [Engine("grad"), Engine("grad_explicit"), Engine("param"), Engine("param", 3)]
    plain = network()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.05)
    for number in range(9):
        _backward(plain, x[number], y[number])
        optimizer.step()
        for engine in engines:
            engine.step(number, mine(x)[number], mine(y)[number])
        # With plain SGD the mean of the weights after a step is the step with the mean gradient.
        for engine in engines[:3]:
            assert_close(engine.model.parameters(), plain.parameters())
            assert same_on_all_ranks(engine.model.parameters())
        together = (number + 1) % 3 == 0
        assert same_on_all_ranks(engines[3].model.parameters()) == together
    assert (flat(engines[3].model.parameters()) - flat(plain.parameters())).abs().max() > 1e-4


@check
def an_epoch_ends_where_the_first_rank_has_no_data() -> None:
    import torch

    import syrtos.torch as hvd

    x, y = batches(8)
    model = network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05))
    available = (5, 8)[hvd.rank()]
    steps = 0
    while True:
        has_data = torch.tensor([steps < available], dtype=torch.int8)
        hvd.allreduce_(has_data, op=hvd.Min)
        if not has_data.item():
            break
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(mine(x)[steps]), mine(y)[steps]).backward()
        optimizer.step()
        steps += 1
    assert hvd.allgather_object(steps) == [5, 5]
    assert same_on_all_ranks(model.parameters())


@check
def ranks_wait_while_the_first_evaluates() -> None:
    """The first rank works alone and tells the others from time to time to go on waiting."""
    import torch

    import syrtos.torch as hvd

    waited = 0
    for turn in range(4):
        if hvd.rank() == 0:
            time.sleep(0.5)
        more = torch.tensor([turn < 3 and hvd.rank() == 0], dtype=torch.int8)
        hvd.broadcast_(more, 0)
        if not more.item():
            break
        waited += 1
    assert waited == 3
    score = {"dev": 0.25, "epoch": 7} if hvd.rank() == 0 else None
    assert hvd.broadcast_object(score, 0) == {"dev": 0.25, "epoch": 7}


@check
def sums_over_ranks_have_gradients_and_extremes_have_none() -> None:
    import torch

    import syrtos.torch as hvd

    source = torch.Generator().manual_seed(11)
    values = torch.rand(2, 3, generator=source, dtype=torch.float64)
    x = values[hvd.rank()].clone().requires_grad_()
    # Each rank has a function of all ranks' inputs; the gradient of their sum comes back.
    total = hvd.allreduce(x.square(), op=hvd.Sum)
    (total * (hvd.rank() + 1)).sum().backward()
    assert torch.allclose(x.grad, (1 + 2) * 2 * values[hvd.rank()])

    def mean_on_all(t: Any) -> Any:
        return hvd.allreduce(t.sin(), op=hvd.Average)

    # The same numbers on both ranks, moved in the same way, so that differences can be taken.
    same = values[0].clone().requires_grad_()
    assert torch.autograd.gradcheck(mean_on_all, (same,))
    for op in (hvd.Min, hvd.Max):
        extreme = hvd.allreduce(x, op=op)
        with raises(RuntimeError, op.name):
            extreme.sum().backward()
