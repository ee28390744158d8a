"""SyncBatchNorm against torch's own batch normalization of the whole batch."""

from __future__ import annotations

from typing import Any

from torch_checks import RANKS, check, raises


def compare(
    shape: tuple[int, ...], rows: list[int], *, permuted: bool = False, **settings: Any
) -> None:
    """One step of both; `rows` says how many of the samples each rank has."""
    import torch

    import syrtos.torch as hvd

    torch.manual_seed(3)
    dtype = settings.pop("dtype", torch.float32)
    batch = (torch.randn(sum(rows), *shape[1:]) * 3 + 100).to(dtype)
    upstream = torch.randn(sum(rows), *shape[1:]).to(dtype)
    begin = sum(rows[: hvd.rank()])
    mine = slice(begin, begin + rows[hvd.rank()])
    plain_class = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d}
    plain = plain_class[batch.dim()](shape[1], **settings)
    synced = hvd.SyncBatchNorm(shape[1], **settings)
    for module in (plain, synced):
        if module.affine:
            torch.nn.init.uniform_(module.weight, generator=torch.Generator().manual_seed(1))
            torch.nn.init.uniform_(module.bias, generator=torch.Generator().manual_seed(2))
        module.to(torch.float64 if dtype == torch.float64 else torch.float32)
    for _ in range(3):  # running statistics depend on the number of batches
        whole = batch.clone().requires_grad_()
        part = batch[mine].clone()
        if permuted:
            part = part.transpose(1, -1).contiguous().transpose(1, -1)
            assert not part.is_contiguous()
        part.requires_grad_()
        plain.zero_grad()
        synced.zero_grad()
        expected, result = plain(whole), synced(part)
        expected.backward(upstream)
        result.backward(upstream[mine])
    coarse = dtype in (torch.bfloat16, torch.float16)
    close = dict(atol=5e-2, rtol=2e-2) if coarse else dict(atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(result, expected[mine], **close)
    torch.testing.assert_close(part.grad, whole.grad[mine], **close)
    if plain.affine:
        for name in ("weight", "bias"):
            total = hvd.allreduce(getattr(synced, name).grad, op=hvd.Sum)
            torch.testing.assert_close(total, getattr(plain, name).grad, atol=5e-4, rtol=1e-3)
    if plain.track_running_stats:
        torch.testing.assert_close(synced.running_mean, plain.running_mean, **close)
        torch.testing.assert_close(synced.running_var, plain.running_var, **close)
        assert synced.num_batches_tracked == plain.num_batches_tracked
        plain.eval()
        synced.eval()
        torch.testing.assert_close(synced(batch[mine]), plain(batch[mine]), **close)


@check
def batch_norm_equals_torchs_on_the_whole_batch() -> None:
    compare((4, 5, 3, 3), [2, 2])
    compare((4, 5, 3, 3), [2, 2], permuted=True)
    compare((4, 5, 3, 3), [1, 3])
    compare((4, 5, 3, 3), [0, 4])
    compare((7, 4), [3, 4])
    compare((4, 3, 6), [1, 3], permuted=True)
    compare((2, 5), [1, 1])  # neither rank could do it alone


@check
def batch_norm_has_torchs_options_and_dtypes() -> None:
    import torch

    compare((4, 5, 3, 3), [1, 3], momentum=None)
    compare((4, 5, 3, 3), [2, 2], affine=False, eps=0.1)
    compare((4, 5, 3, 3), [2, 2], track_running_stats=False)
    compare((4, 5, 3, 3), [2, 2], momentum=0.7, dtype=torch.float64)
    compare((4, 5, 3, 3), [1, 3], dtype=torch.bfloat16)


@check
def batch_norm_takes_one_allreduce_each_way() -> None:
    import torch

    import syrtos.torch as hvd
    from syrtos import _session

    layer = hvd.SyncBatchNorm(5)
    x = torch.randn(3, 5, 2, 2).requires_grad_()
    layer(x).sum().backward()  # the first time costs nothing more, but is remembered

    def plans() -> int:
        return _session.current().engine.counters()["plans"]

    before = plans()
    y = layer(x)
    between = plans()
    y.sum().backward()
    assert (between - before, plans() - between) == (1, 1)
    layer.eval()
    layer(x).sum().backward()
    assert plans() - between == 1


@check
def batch_norm_says_what_does_not_fit() -> None:
    import copy

    import torch

    import syrtos.torch as hvd

    layer = hvd.SyncBatchNorm(3)
    raises(ValueError, lambda: layer(torch.ones(3)), "(n, 3, ...)", "(3,)")
    raises(ValueError, lambda: layer(torch.ones(2, 4, 5)), "SyncBatchNorm(3)", "4 channels")
    rows = 1 if hvd.rank() == 0 else 0
    raises(ValueError, lambda: layer(torch.ones(rows, 3)), "more than 1 value", "together have 1")
    again = copy.deepcopy(layer)
    again.load_state_dict(torch.nn.BatchNorm2d(3).state_dict())
    assert repr(again).startswith("SyncBatchNorm(3, eps=1e-05")
    assert RANKS == hvd.size()


@check
def batch_norm_is_part_of_a_graph() -> None:
    import copy

    import torch

    import syrtos.torch as hvd

    for dtype, settings in (
        (torch.float32, {}),
        (torch.float32, {"momentum": None, "affine": False}),
        (torch.bfloat16, {"eps": 0.1}),
    ):
        eager = torch.nn.Sequential(torch.nn.Linear(3, 5), hvd.SyncBatchNorm(5, **settings))
        traced = copy.deepcopy(eager)
        compiled = torch.compile(traced, fullgraph=True, backend="aot_eager")
        exact = dtype == torch.float32
        close = {"atol": 1e-5, "rtol": 1e-4} if exact else {"atol": 5e-2, "rtol": 5e-2}
        gradients = {"atol": 1e-4, "rtol": 1e-3} if exact else {"atol": 0.2, "rtol": 0.1}
        for step in range(3):
            x = torch.randn(4, 3) * 3 + hvd.rank() + step
            with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                outputs = [module(x) for module in (eager, compiled)]
            for module, output in zip((eager, traced), outputs, strict=True):
                module.zero_grad()
                (output.float() ** 3).sum().backward()
            torch.testing.assert_close(*outputs, **close)
            for a, b in zip(eager.parameters(), traced.parameters(), strict=True):
                torch.testing.assert_close(a.grad, b.grad, **gradients)
            for a, b in zip(eager.buffers(), traced.buffers(), strict=True):
                torch.testing.assert_close(a, b, **close)
    torch._dynamo.reset()
