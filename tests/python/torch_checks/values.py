"""What is peculiar to torch's tensors: dtypes, layouts, writing in place, compression, splits."""

from __future__ import annotations

from typing import Any

import numpy as np

from torch_checks import RANKS, check, raises


@check
def every_dtype_of_torch_is_moved_and_keeps_its_bits() -> None:
    import torch

    import syrtos.torch as hvd

    names = (
        "bool uint8 int8 int16 int32 int64 uint16 uint32 uint64 float16 bfloat16 float32 float64 "
        "complex32 complex64 complex128 float8_e4m3fn float8_e5m2"
    ).split()
    for name in names:
        dtype = getattr(torch, name)
        size = torch.empty(0, dtype=dtype).element_size()
        for rows in (3, 1, 0):
            raw = [np.arange(rows * 2 * size, dtype=np.uint8) % 2 + r for r in range(RANKS)]
            if name == "bool":
                raw = [array % 2 for array in raw]
            mine = torch.tensor(raw[hvd.rank()].tolist(), dtype=torch.uint8)
            mine = mine.view(dtype).reshape(rows, 2)
            to_first = hvd.alltoall(mine, splits=[rows, 0])[0]
            whole = np.concatenate(raw)
            for result, expected in (
                (hvd.broadcast(mine, 1), raw[1]),
                (hvd.allgather(mine), whole),
                (to_first, whole if hvd.rank() == 0 else whole[:0]),
            ):
                assert result.dtype == dtype, name
                assert result.shape[1:] == (2,), name
                got = result.flatten().view(torch.uint8) if result.numel() else torch.empty(0)
                assert got.tolist() == expected.tolist(), name


@check
def reductions_of_one_and_many_do_not_mix_up_buffers() -> None:
    import torch

    import syrtos.torch as hvd

    me = hvd.rank() + 1.0
    for threshold in (None, 0, 1024):
        if threshold is not None:
            hvd.shutdown()
            hvd.init(fusion_threshold_bytes=threshold)
        alone = torch.full((1000,), me)
        assert hvd.allreduce(alone, op=hvd.Sum).eq(3.0).all()
        assert alone.eq(me).all()
        burst = [torch.full((20,), me) for _ in range(50)]
        handles = [hvd.allreduce_async(tensor, op=hvd.Sum) for tensor in burst]
        assert all(hvd.synchronize(handle).eq(3.0).all() for handle in handles)
        assert all(tensor.eq(me).all() for tensor in burst)
        large = torch.full((2_000_003,), me)
        assert hvd.allreduce(large, op=hvd.Sum).eq(3.0).all()
        assert large.eq(me).all()
        for tensor in (alone, large):
            assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
            assert tensor.eq(3.0).all()
        handles = [hvd.allreduce_async_(tensor, op=hvd.Sum) for tensor in burst]
        results = [hvd.synchronize(handle) for handle in handles]
        assert all(result is tensor for result, tensor in zip(results, burst, strict=True))
        assert all(tensor.eq(3.0).all() for tensor in burst)
    hvd.shutdown()
    hvd.init()


@check
def bfloat16_is_rounded_once_and_a_burst_of_dtypes_stays_apart() -> None:
    import torch

    import syrtos.torch as hvd

    def share(rank: int) -> Any:
        return ((rank + 1) * 0.5 * torch.arange(1001)).to(torch.bfloat16)

    mine = share(hvd.rank())
    exact = sum(share(rank).float() for rank in range(RANKS))
    assert torch.equal(hvd.allreduce(mine, op=hvd.Sum), exact.to(torch.bfloat16))
    assert torch.equal(hvd.allreduce(mine), (exact / RANKS).to(torch.bfloat16))
    assert torch.equal(hvd.allgather(mine), torch.cat([share(rank) for rank in range(RANKS)]))
    assert torch.equal(hvd.broadcast(mine, 1), share(1))
    rows = slice(0, 501) if hvd.rank() == 0 else slice(501, 1001)
    assert torch.equal(hvd.reducescatter(mine, op=hvd.Sum), exact.to(torch.bfloat16)[rows])
    dtypes = [torch.float16, torch.bfloat16, torch.float32] * 10
    burst = [torch.full((7,), hvd.rank() + 1.0, dtype=dtype) for dtype in dtypes]
    handles = [hvd.allreduce_async(tensor, op=hvd.Sum) for tensor in burst]
    for dtype, handle in zip(dtypes, handles, strict=True):
        result = hvd.synchronize(handle)
        assert result.dtype == dtype
        assert result.float().tolist() == [3.0] * 7


def layouts() -> dict[str, Any]:
    import torch

    base = torch.arange(24.0).reshape(2, 3, 4)
    pairs = torch.complex(base, base + 1)
    return {
        "transposed": base.clone().transpose(0, 2),
        "every second": base.clone()[:, :, ::2],
        "channels last": base.reshape(1, 2, 3, 4).clone(memory_format=torch.channels_last),
        "offset": base.clone().flatten()[5:],
        "conjugate": pairs.clone().conj(),
        "negated": pairs.clone().conj().imag,
        "scalar": torch.tensor(2.0),
        "one element": torch.tensor([[7]]),
    }


@check
def tensors_of_any_layout_are_read_and_written() -> None:
    import torch

    import syrtos.torch as hvd

    for name, tensor in layouts().items():
        expected = tensor.detach().clone() * 3
        result = hvd.allreduce(tensor * (hvd.rank() + 1), op=hvd.Sum)
        assert torch.equal(result, expected), name
        tensor *= hvd.rank() + 1
        assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor, name
        assert torch.equal(tensor, expected), name
    for name, tensor in layouts().items():
        expected = tensor.detach().clone() * 2
        tensor *= hvd.rank() + 1
        assert hvd.synchronize(hvd.broadcast_async_(tensor, 1)) is tensor
        assert torch.equal(tensor, expected), name
    whole = torch.zeros(4, 4)
    hvd.allreduce_(whole[:, 1].fill_(1.0), op=hvd.Sum)
    assert whole.sum(0).tolist() == [0.0, 4.0 * RANKS, 0.0, 0.0]


@check
def grouped_in_place_and_async_forms_agree() -> None:
    import torch

    import syrtos.torch as hvd

    def tensors() -> list[Any]:
        me = hvd.rank() + 1
        return [torch.full((3,), float(me)), torch.full((2, 2), me), torch.zeros(0, 4).t()]

    expected = [torch.full((3,), 3.0), torch.full((2, 2), 3), torch.zeros(4, 0)]

    def verify(results: list[Any]) -> None:
        assert all(map(torch.equal, results, expected))
        assert len(results) == len(expected)

    verify(hvd.grouped_allreduce(tensors(), op=hvd.Sum))
    verify(hvd.synchronize(hvd.grouped_allreduce_async(tuple(tensors()), op=hvd.Sum)))
    mine = tensors()
    results = hvd.grouped_allreduce_(mine, op=hvd.Sum)
    verify(mine)
    assert all(result is tensor for result, tensor in zip(results, mine, strict=True))
    mine = tensors()
    handle = hvd.grouped_allreduce_async_(mine, op=hvd.Sum)
    del results
    verify(hvd.synchronize(handle))
    verify(mine)
    rows = [torch.full((hvd.rank() + 1,), hvd.rank()), torch.ones(1, 2, dtype=torch.bool)]
    for ints, truths in (
        hvd.grouped_allgather(rows),
        hvd.synchronize(hvd.grouped_allgather_async(rows)),
    ):
        assert ints.tolist() == [0, 1, 1]
        assert truths.tolist() == [[True, True]] * RANKS
    pair = [torch.arange(4.0), torch.ones(3, 2)]
    for handle in (hvd.grouped_reducescatter_async(pair), hvd.grouped_reducescatter_async(pair)):
        first, second = hvd.synchronize(handle)
        assert first.tolist() == [[0.0, 1.0], [2.0, 3.0]][hvd.rank()]
        assert second.shape == ((2, 2), (1, 2))[hvd.rank()]


@check
def handles_keep_tensors_alive_and_may_be_dropped() -> None:
    import gc

    import torch

    import syrtos.torch as hvd

    handles = [
        hvd.allreduce_async(torch.full((50_000,), i + hvd.rank() + 0.0), op=hvd.Sum)
        for i in range(20)
    ]
    for i in range(20):
        hvd.allreduce_async(torch.ones(50_000) * i)  # nobody waits for it
    gc.collect()
    scratch = [torch.full((50_000,), -1.0) for _ in range(40)]
    for i, handle in enumerate(handles):
        assert hvd.synchronize(handle).eq(2.0 * i + 1).all()
        assert hvd.poll(handle)
        assert hvd.synchronize(handle).eq(2.0 * i + 1).all()  # the same result again
    assert len(scratch) == 40


@check
def splits_are_lists_or_tensors_and_come_back_alike() -> None:
    import torch

    import syrtos.torch as hvd

    me = hvd.rank()
    mine = torch.arange(3) + 10 * me
    expected = [[0, 10], [1, 2, 11, 12]][me]
    for splits in (torch.tensor([1, 2], dtype=torch.int32), torch.tensor([1, 2]), [1, 2], (1, 2)):
        output, received = hvd.alltoall(mine, splits=splits)
        assert output.tolist() == expected
        assert received.tolist() == [1 + me] * 2
        assert received.dtype == (splits.dtype if torch.is_tensor(splits) else torch.int64)
        output, received = hvd.synchronize(hvd.alltoall_async(mine, splits=splits))
        assert output.tolist() == expected
        assert received.tolist() == [1 + me] * 2
    assert hvd.synchronize(hvd.alltoall_async(mine[:2])).tolist() == [me, 10 + me]
    bad = torch.tensor([0.5, 1.5])
    raises(ValueError, lambda: hvd.alltoall(mine, splits=bad), "splits", "whole numbers")
    raises(ValueError, lambda: hvd.alltoall(mine, splits=torch.ones(2, 2)), "splits", "(2, 2)")
    raises(ValueError, lambda: hvd.alltoall(mine, splits=torch.tensor(3)), "splits", "()")


@check
def compression_casts_and_gives_back_the_dtype() -> None:
    import torch

    import syrtos.compression
    import syrtos.torch as hvd

    third = torch.tensor([1 / 3, hvd.rank() + 0.5], dtype=torch.float64)
    for compression, wire in (
        (hvd.Compression.fp16, torch.float16),
        (hvd.Compression.bf16, torch.bfloat16),
    ):
        sent, context = compression.compress(third)
        assert sent.dtype == wire
        assert compression.decompress(sent, context).dtype == torch.float64
        expected = [third[:1].to(wire).double().item(), 1.0]
        results = [
            hvd.allreduce(third, compression=compression),
            *hvd.grouped_allreduce([third], compression=compression),
            hvd.allgather(hvd.reducescatter(third, compression=compression)),
            hvd.allgather(*hvd.grouped_reducescatter([third], compression=compression)),
        ]
        for result in results:
            assert result.dtype == torch.float64
            assert result.tolist() == expected
        for dtype in (torch.int32, torch.bool, torch.complex64):
            sent, context = compression.compress(torch.ones(2, dtype=dtype))
            assert sent.dtype == dtype

    class Negative(hvd.Compression.none):
        @staticmethod
        def compress(tensor: Any) -> tuple[Any, str]:
            return -tensor, "was negated"

        @staticmethod
        def decompress(tensor: Any, ctx: str) -> Any:
            assert ctx == "was negated"
            return -tensor

    me = torch.tensor([float(hvd.rank())])
    assert hvd.allreduce(me, op=hvd.Max, compression=Negative).tolist() == [0.0]

    class Own(hvd.Compression.fp16):
        @staticmethod
        def compress(tensor: Any) -> tuple[Any, Any]:
            return tensor.to(torch.float8_e5m2).to(torch.float32), tensor.dtype

    class Wire(hvd.Compression.none.__mro__[1]):
        wire_dtype = "bfloat16"

    value = torch.tensor([1.3], dtype=torch.float64)
    for compression, wire in (
        (Own, torch.float8_e5m2),
        (Wire, torch.bfloat16),
        (syrtos.compression.FP16Compressor, torch.float16),
    ):
        expected = value.to(wire).double()
        assert torch.equal(hvd.allreduce(value, compression=compression), expected)


@check
def sparse_tensors_are_summed_and_averaged() -> None:
    import torch

    import syrtos.torch as hvd

    def share(rank: int) -> Any:
        # Rank r has rows r and 2, the latter in two pieces.
        indices = torch.tensor([[rank, 2, 2]])
        return torch.sparse_coo_tensor(indices, torch.full((3, 2), rank + 1.0), (4, 2))

    total = sum(share(rank).to_dense() for rank in range(RANKS))
    both = [
        hvd.sparse_allreduce_async(share(hvd.rank()), "sum", hvd.Sum),
        hvd.sparse_allreduce_async(share(hvd.rank()), name="mean", op=hvd.Average),
    ]
    for wait, expected in zip(both, (total, total / RANKS), strict=True):
        result = wait()
        assert result.is_coalesced()
        assert torch.equal(result.to_dense(), expected)
    # One rank has nothing.
    mine = share(0) if hvd.rank() == 0 else share(1) * 0
    mine = mine if hvd.rank() == 0 else torch.sparse_coo_tensor(size=(4, 2))
    if hvd.rank() == 1:
        mine = torch.sparse_coo_tensor(torch.empty((1, 0), dtype=torch.int64), torch.empty(0, 2),
                                       (4, 2))  # fmt: skip
    result = hvd.sparse_allreduce_async(mine, None, hvd.Average)()
    assert torch.equal(result.to_dense(), share(0).to_dense() / 2)
    whole = torch.sparse_coo_tensor([[0, 1], [1, 0]], [3.0, hvd.rank() + 1.0], (2, 2))
    result = hvd.sparse_allreduce_async(whole, None, hvd.Sum)()
    assert result.to_dense().tolist() == [[0.0, 6.0], [3.0, 0.0]]
    raises(TypeError, lambda: hvd.sparse_allreduce_async(torch.ones(2), "d", hvd.Sum), '"d"', "COO")
    raises(ValueError, lambda: hvd.sparse_allreduce_async(whole, "m", hvd.Max), '"m"', "op=Max")
    other = torch.sparse_coo_tensor([[0], [0]], [1.0], (2, 2 + hvd.rank()))
    wait = hvd.sparse_allreduce_async(other, "shape", hvd.Sum)
    raises(hvd.HorovodInternalError, wait, '"shape"', "(2, 2)", "(2, 3)")


@check
def average_is_deprecated_and_groups_are_lists() -> None:
    import warnings

    import torch

    import syrtos.torch as hvd

    me = torch.tensor([float(hvd.rank())])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert hvd.allreduce(me, average=False).item() == 1.0
        assert hvd.allreduce(me, average=True).item() == 0.5
        handle = hvd.grouped_allreduce_async([me], average=False)
    assert [warning.category for warning in seen] == [DeprecationWarning] * 3
    assert {warning.filename for warning in seen} == {__file__}
    assert hvd.synchronize(handle)[0].item() == 1.0
    raises(ValueError, lambda: hvd.allreduce(me, average=True, op=hvd.Sum), "op=")
    for call in (hvd.grouped_allreduce, hvd.grouped_allgather, hvd.grouped_reducescatter):
        raises(TypeError, lambda call=call: call(me), call.__name__, "list or tuple")
