"""Gradients that are sparse, missing or frozen, and those of closures."""

from __future__ import annotations

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


def _embedding(optimizer: str, rows: list[list[int]], **options: Any) -> Any:
    import torch

    import syrtos.torch as hvd

    torch.manual_seed(6)
    model = torch.nn.Embedding(10, 3, sparse=True)
    made = getattr(torch.optim, optimizer)(list(model.parameters()), lr=0.1)
    made = hvd.DistributedOptimizer(made, model.named_parameters(), **options)
    mine = rows[hvd.rank()]
    if mine:
        (model(torch.tensor(mine)) * torch.arange(1.0, 1 + len(mine))[:, None]).sum().backward()
    made.step()
    return model.weight


def _expected_gradient(rows: list[list[int]]) -> Any:
    import torch

    expected = torch.zeros(10, 3)
    for looked_up in rows:
        for value, row in enumerate(looked_up, 1):
            expected[row] += value
    return expected / len(rows)


@check
def sparse_gradients() -> None:
    import torch

    for rows in ([[0, 9, 9], [1, 9, 9]], [[2, 5], []]):
        expected = _expected_gradient(rows)
        adam = _embedding("SparseAdam", rows)
        sgd = _embedding("SGD", rows)
        for weight in (adam, sgd):
            assert weight.grad.is_sparse
            assert torch.equal(weight.grad.coalesce().to_dense(), expected)
            assert same_on_all_ranks([weight])
        dense = _embedding("SGD", rows, sparse_as_dense=True)
        assert not dense.grad.is_sparse
        assert torch.equal(dense.grad, expected)
        assert torch.equal(dense, sgd)
        # SparseAdam takes sparse gradients only.
        again = _embedding("SparseAdam", rows, sparse_as_dense=True)
        assert again.grad.is_sparse
        assert torch.equal(again, adam)


@check
def one_row_of_one_column_is_not_lost() -> None:
    import torch

    import syrtos.torch as hvd

    for as_dense in (False, True):
        model = torch.nn.Embedding(4, 1, sparse=True)
        sgd = torch.optim.SGD(model.parameters(), lr=1.0)
        hvd.DistributedOptimizer(sgd, model.named_parameters(), sparse_as_dense=as_dense)
        model(torch.tensor([hvd.rank()])).sum().backward()
        sgd.step()
        assert model.weight.grad.to_dense().flatten().tolist() == [0.5, 0.5, 0.0, 0.0]


@check
def sparse_on_one_rank_and_dense_on_the_other() -> None:
    import torch

    import syrtos.torch as hvd

    weight = torch.nn.Parameter(torch.ones(4, 2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), [("w", weight)])
    if hvd.rank() == 0:
        torch.nn.functional.embedding(torch.tensor([1, 1]), weight, sparse=True).sum().backward()
        assert weight.grad.is_sparse
    else:
        (weight * 3).sum().backward()
    optimizer.step()
    expected = torch.full((4, 2), 1.0 - 1.5)
    expected[1] -= 1.0
    assert torch.equal(weight.detach(), expected)


def _tied(embedding: Any, head: Any, words: Any, optimizer: Any) -> None:
    optimizer.zero_grad()
    head(embedding(words).mean(1)).square().mean().backward()
    optimizer.step()


@check
def embeddings_train_as_in_one_process() -> None:
    import torch

    import syrtos.torch as hvd

    source = torch.Generator().manual_seed(8)
    words = torch.randint(0, 30, (50, 16, 3), generator=source)
    cases: list[tuple[str, dict[str, Any], bool]] = [
        ("SGD", {"lr": 0.1, "momentum": 0.9}, False),
        ("Adagrad", {"lr": 0.05}, False),
        ("Adam", {"lr": 0.01}, True),
        ("AdamW", {"lr": 0.01}, True),
        ("RMSprop", {"lr": 0.003}, True),
    ]
    for kind, options, as_dense in cases:
        results = []
        for distributed in (True, False):
            torch.manual_seed(9)
            # The reference for dense gradients has dense ones itself.
            embedding = torch.nn.Embedding(30, 4, sparse=distributed or not as_dense)
            model = torch.nn.ModuleList([embedding, torch.nn.Linear(4, 1)])
            optimizer = getattr(torch.optim, kind)(model.parameters(), **options)
            if distributed:
                optimizer = hvd.DistributedOptimizer(
                    optimizer, model.named_parameters(), sparse_as_dense=as_dense
                )
            for batch in mine(words) if distributed else words:
                _tied(*model, batch, optimizer)
            results.append(flat(model.parameters()))
        assert_close(results[:1], results[1:])
        assert same_on_all_ranks(results[:1])


@check
def training_equals_one_process_for_uneven_use() -> None:
    """A parameter without gradient on some ranks counts as zeros; on all ranks, it rests."""
    import torch

    import syrtos.torch as hvd

    def run(optimizer: Any, model: Any, ranks: list[int], share: float) -> None:
        for step in range(12):
            optimizer.zero_grad()
            total = torch.zeros(())
            for rank in ranks:
                x = torch.full((2, 8), 0.1 * (step + 1) * (rank + 1))
                hidden = model[0](x)
                if (step + rank) % 3 == 0:  # on one rank, on the other, or on none
                    hidden = model[2](torch.tanh(hidden))
                total = total + hidden.square().mean() * share
            total.backward()
            optimizer.step()

    options: dict[str, Any] = {"lr": 0.05, "weight_decay": 0.1}
    for kind in ("Adam", "SGD"):
        for groups in (None, 1):
            ours, plain = network(), network()
            wrapped = getattr(torch.optim, kind)(ours.parameters(), **options)
            wrapped = hvd.DistributedOptimizer(wrapped, ours.named_parameters(), groups=groups)
            run(wrapped, ours, [hvd.rank()], 1.0)
            reference = getattr(torch.optim, kind)(plain.parameters(), **options)
            run(reference, plain, [0, 1], 0.5)
            assert_close(ours.parameters(), plain.parameters())
            assert same_on_all_ranks(ours.parameters())
            assert (flat(ours.parameters()) - flat(network().parameters())).abs().max() > 0.01
            steps = [float(s["step"]) for s in wrapped.state.values() if "step" in s]
            assert steps == [float(s["step"]) for s in reference.state.values() if "step" in s]


@check
def lbfgs_in_double_precision() -> None:
    import torch

    import syrtos.torch as hvd

    x, y = (t.double() for t in batches(10))
    results = []
    for distributed in (True, False):
        model = network().double()
        optimizer = torch.optim.LBFGS(
            model.parameters(), lr=0.5, max_iter=6, line_search_fn="strong_wolfe"
        )
        if distributed:
            optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        share = (mine(x), mine(y)) if distributed else (x, y)
        for inputs, targets in zip(*share, strict=True):

            def closure(
                model: Any = model, optimizer: Any = optimizer, x: Any = inputs, y: Any = targets
            ) -> float:
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                return loss.item()

            loss = optimizer.step(closure)
            assert isinstance(loss, float)
        results.append(flat(model.parameters()))
    assert_close(results[:1], results[1:], 1e-9)
    assert same_on_all_ranks(results[:1])


@check
def dynamic_freezing_of_two_models() -> None:
    import torch

    import syrtos.torch as hvd

    def run(distributed: bool) -> list[Any]:
        torch.manual_seed(7)
        models = [torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)]
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in models]
        if distributed:
            for model, optimizer in zip(models, optimizers, strict=True):
                hvd.DistributedOptimizer(optimizer, model.named_parameters())
        x, _ = batches(10, 8, 3)
        for i, batch in enumerate(mine(x) if distributed else x):
            trained = i % 2
            for number, model in enumerate(models):
                model.requires_grad_(number == trained)
                optimizers[number].zero_grad()
            models[1](models[0](batch)).square().mean().backward()
            optimizers[trained].step()
        return [p for m in models for p in m.parameters()]

    ours = run(True)
    assert_close(ours, run(False))
    assert same_on_all_ranks(ours)


@check
def gradients_of_unequal_shapes_are_an_error_everywhere() -> None:
    import torch

    import syrtos.torch as hvd

    w = torch.nn.Parameter(torch.zeros(2 + hvd.rank()))
    other = torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([w, other], lr=1.0), [("w", w), ("other", other)]
    )
    (w.sum() + other.sum()).backward()
    with raises(hvd.HorovodInternalError, "allreduce.w", "shape"):
        optimizer.step()
    optimizer.zero_grad()
    other.sum().backward()
    optimizer.step()
    assert other.item() == -1.0


@check
def narrow_dtypes_travel_on_request() -> None:
    import torch

    import syrtos.torch as hvd

    values = torch.tensor([1.0 + 2**-9, 3.0, -1e-3])
    for compression, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        w = torch.nn.Parameter(torch.zeros(3))
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([w], lr=1.0),
            [("w", w)],
            compression=getattr(hvd.Compression, compression),
        )
        (w * values * (hvd.rank() + 1)).sum().backward()
        optimizer.step()
        sent = [(values * r).to(dtype).float() for r in (1, 2)]
        assert torch.equal(w.grad, (sum(sent) / 2).to(dtype).float())
        assert w.grad.dtype == torch.float32
