"""Collectives inside ``torch.compile``: no graph breaks, and the numbers of eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch_checks import RANKS, check, raises


def plans() -> int:
    """How many collectives this rank has carried out."""
    from syrtos import _session

    return _session.current().engine.counters()["plans"]


@check
def operators_pass_torchs_own_check() -> None:
    import torch

    import syrtos.torch as hvd

    me = hvd.rank()
    world = (0, RANKS, me)
    how = (hvd.Sum.value, 0.5, 2.0, *world, None)

    def x(rows: int = 4) -> Any:
        return torch.rand(rows, 3, requires_grad=True)

    one = torch.tensor([1, 3])
    cases = [
        ("allreduce", ([x(), x(5)], *how)),
        ("allreduce", ([x(), x().detach().to(torch.int64)], *how)),
        ("allgather", ([x(), x(2)], True, *world, None)),
        ("allgather", ([x(me + 2)], False, *world, None)),
        ("broadcast", (x(), 1, *world, None)),
        ("alltoall", (x(), None, True, *world, None)),
        ("alltoall", (x(), one, False, *world, None)),
        ("reducescatter", ([x(), x(5)], *how)),
        ("own_rows", ([x(8).detach()], [4], *world, None)),
        ("at_root", (x().detach(), 0, *world, None)),
        ("send_back", (x().detach(), one, 2 if me == 0 else 6, *world, None)),
        ("gathered_shares", ([x(2).detach()], [4], *how)),
    ]
    for name, arguments in cases:
        operator = getattr(torch.ops.syrtos, name).default
        result = torch.library.opcheck(operator, arguments, raise_exception=False)
        assert set(result.values()) == {"SUCCESS"}, (name, result)


def contrastive(torch: Any, hvd: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Embeddings of all ranks are compared; the loss is averaged in the graph."""
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))

    def step(x: Any) -> Any:
        mine = torch.nn.functional.normalize(model(x), dim=1)
        everyone = hvd.allgather(mine)
        loss = torch.logsumexp(mine @ everyone.t(), 1).mean()
        return hvd.allreduce(loss, op=hvd.Average)

    return model, step


def experts(torch: Any, hvd: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Each rank is an expert for half of everyone's rows; the gate comes from rank 1."""
    model = torch.nn.ModuleDict({"gate": torch.nn.Linear(6, 6), "expert": torch.nn.Linear(6, 6)})

    def step(x: Any) -> Any:
        gate = hvd.broadcast(model["gate"].weight, root_rank=1)
        sent = hvd.alltoall(x @ gate)
        back = hvd.alltoall(torch.tanh(model["expert"](sent)))
        return (back * x).square().sum()

    return model, step


def sharded(torch: Any, hvd: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Statistics are reduced as a group, and each rank keeps a share of the activations."""
    model = torch.nn.Sequential(torch.nn.Conv1d(2, 4, 3), torch.nn.Flatten())

    def step(x: Any) -> Any:
        y = model(x.reshape(-1, 2, 3))
        mean, square = hvd.grouped_allreduce([y.mean(0), y.square().mean(0)])
        y = (y - mean) * torch.rsqrt(square - mean**2 + 1e-3)
        share = hvd.reducescatter(y, op=hvd.Sum, compression=hvd.Compression.none)
        (other,) = hvd.grouped_reducescatter([y], prescale_factor=0.5)
        return (share * other).sum() + hvd.grouped_allgather([share])[0].sum()

    return model, step


def gradients(model: Any, step: Callable[[Any], Any], x: Any) -> list[Any]:
    model.zero_grad()
    leaf = x.clone().requires_grad_()
    loss = step(leaf)
    loss.backward()
    return [
        loss.detach(),
        leaf.grad,
        *(p.grad.clone() for p in model.parameters() if p.grad is not None),
    ]


@check
def three_models_in_one_graph_each_equal_eager_mode() -> None:
    import torch

    import syrtos.torch as hvd

    for make in (contrastive, experts, sharded):
        torch.manual_seed(hvd.rank())
        model, step = make(torch, hvd)
        compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
        for seed in range(3):
            x = torch.randn(4, 6, generator=torch.Generator().manual_seed(seed + 10 * hvd.rank()))
            expected = gradients(model, step, x)
            before = plans()
            results = gradients(model, compiled, x)
            assert plans() > before
            for result, value in zip(results, expected, strict=True):
                torch.testing.assert_close(result, value, msg=make.__name__)
        explained = torch._dynamo.explain(step)(x)
        assert explained.graph_break_count == 0, explained.break_reasons
        assert explained.graph_count == 1


@check
def inductor_equals_eager_mode() -> None:
    import torch

    import syrtos.torch as hvd

    torch.manual_seed(hvd.rank())
    model, step = contrastive(torch, hvd)
    x = torch.randn(4, 6)
    expected = gradients(model, step, x)
    results = gradients(model, torch.compile(step, fullgraph=True), x)
    for result, value in zip(results, expected, strict=True):
        torch.testing.assert_close(result, value)


@check
def a_whole_step_with_autograd_inside_equals_eager_mode() -> None:
    import torch

    import syrtos.torch as hvd

    def step(weight: Any, x: Any) -> Any:
        def loss(weight: Any) -> Any:
            return (x @ weight).square().mean()

        gradient = torch.func.grad(loss)(weight)
        return weight - 0.1 * hvd.allreduce(gradient, name="gradient")

    torch.manual_seed(0)
    start = torch.randn(3, 2)
    batches = [torch.randn(5, 3) for _ in range(RANKS)]
    weight = start
    for _ in range(3):
        weight = torch.compile(step, fullgraph=True, backend="aot_eager")(
            weight, batches[hvd.rank()]
        )
    expected = start
    for _ in range(3):
        grads = []
        for batch in batches:
            leaf = expected.clone().requires_grad_()
            (batch @ leaf).square().mean().backward()
            grads.append(leaf.grad)
        expected = expected - 0.1 * sum(grads) / RANKS
    torch.testing.assert_close(weight, expected)


@check
def unused_results_and_equal_calls_stay_in_the_graph() -> None:
    import torch

    import syrtos.torch as hvd

    def dead(x: Any) -> Any:
        hvd.allreduce(x)
        hvd.grouped_allgather([x])
        hvd.broadcast(x, 0)
        return x + 1

    def equal(x: Any) -> Any:
        return hvd.allreduce(x, op=hvd.Sum) + hvd.allreduce(x, op=hvd.Sum)

    x = torch.ones(3)
    for backend in ("eager", "aot_eager"):
        for function, calls in ((dead, 3), (equal, 2)):
            torch._dynamo.reset()
            compiled = torch.compile(function, fullgraph=True, backend=backend)
            before = plans()
            assert torch.equal(compiled(x), function(x))
            assert plans() - before == 2 * calls, (backend, function)


@check
def graphs_take_new_shapes_and_every_argument() -> None:
    import torch

    import syrtos.torch as hvd

    alone = hvd.add_process_set([1])

    def function(x: Any) -> Any:
        y = hvd.allreduce(x, average=False, name="named", prescale_factor=0.5)
        y = hvd.allreduce(y, op=hvd.Max, compression=hvd.Compression.bf16)
        return hvd.allgather(y), hvd.reducescatter(y, op=hvd.Sum, name="r")

    compiled = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (2, 5, 9):
        x = torch.arange(rows * 2.0).reshape(rows, 2)
        gathered, share = compiled(x)
        assert torch.equal(gathered, torch.cat([x] * RANKS))
        counts = [(rows + 1) // 2, rows // 2]
        expected = torch.split(x * RANKS, counts)[hvd.rank()]
        assert torch.equal(share, expected)
    if hvd.rank() == 1:
        compiled = torch.compile(
            lambda x: hvd.allreduce(x, op=hvd.Sum, process_set=alone),
            fullgraph=True,
            backend="aot_eager",
        )
        assert compiled(torch.ones(2)).tolist() == [1.0, 1.0]
    hvd.remove_process_set(alone)


@check
def graphs_with_uneven_rows_say_so_or_are_told_before() -> None:
    import torch

    import syrtos.torch as hvd

    me = hvd.rank()
    x = torch.full((me + 1, 2), float(me))
    torch._dynamo.reset()
    gather = torch.compile(
        lambda x: hvd.allgather(x) * 2, fullgraph=True, backend="aot_eager", dynamic=False
    )
    raises(ValueError, lambda: gather(x), "allgather", "3 rows", "capture_dynamic_output_shape_ops")
    splits = torch.tensor([1, me])

    def exchange(x: Any, splits: Any) -> Any:
        output, received = hvd.alltoall(x, splits=splits)
        return output * 2, received

    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        gather = torch.compile(lambda x: hvd.allgather(x) * 2, fullgraph=True, backend="aot_eager")
        leaf = x.clone().requires_grad_()
        result = gather(leaf)
        assert result.tolist() == [[0.0, 0.0], [2.0, 2.0], [2.0, 2.0]]
        result.sum().backward()
        assert leaf.grad.tolist() == [[2.0, 2.0]] * (me + 1)
        compiled = torch.compile(exchange, fullgraph=True, backend="aot_eager")
        output, received = compiled(x, splits)
        assert output.tolist() == [[[0.0, 0.0], [2.0, 2.0]], [[2.0, 2.0]]][me]
        assert received.tolist() == [[1, 1], [0, 1]][me]
    torch._dynamo.reset()
    # Without it the graph breaks there, and all is right.
    output, received = torch.compile(exchange, backend="aot_eager")(x, splits)
    assert output.tolist() == [[[0.0, 0.0], [2.0, 2.0]], [[2.0, 2.0]]][me]
    torch._dynamo.reset()


@check
def what_no_graph_can_hold_breaks_it_and_is_right() -> None:
    import torch

    import syrtos.torch as hvd

    def function(x: Any) -> Any:
        handle = hvd.allreduce_async(x * 2, op=hvd.Sum)
        y = x + 1
        hvd.allreduce_(y, op=hvd.Sum)
        return hvd.synchronize(handle) + y

    torch._dynamo.reset()
    x = torch.tensor([hvd.rank() + 1.0])
    assert torch.compile(function, backend="aot_eager")(x).tolist() == [6.0 + 5.0]
    torch._dynamo.reset()


@check
def graphs_refuse_gradients_of_max() -> None:
    import torch

    import syrtos.torch as hvd

    def function(x: Any) -> Any:
        return hvd.allreduce(x * 2, op=hvd.Max, name="worst").sum()

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="aot_eager")
    assert compiled(torch.ones(2)).item() == 4.0
    raises(
        Exception,
        lambda: compiled(torch.ones(2, requires_grad=True)).backward(),
        'allreduce "worst" with op=Max has no gradient',
    )
    torch._dynamo.reset()
