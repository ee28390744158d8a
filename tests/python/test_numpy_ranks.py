"""What only the NumPy front end promises, on several ranks."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from ranks import run_ranks


def opaque_body() -> None:
    import ml_dtypes

    import syrtos.numpy as st

    st.init()
    me, size = st.rank(), st.size()
    samples = {
        "longdouble": lambda r: np.full(2, np.longdouble(r) / 3),
        "datetime": lambda r: np.array([f"2026-01-0{r + 1}"], "datetime64[D]"),
        "bytes": lambda r: np.array([b"ab", b"cde"[: r + 1]], "S5"),
        "text": lambda r: np.array(["ä" * (r + 1), ""], "U4"),
        "void": lambda r: np.frombuffer(bytes([r] * 14), "V7"),
        "record": lambda r: np.array([(r, r / 2)], [("a", "<i4"), ("b", ">f8")]),
        "float8": lambda r: np.array([r, 1.5], ml_dtypes.float8_e4m3fn),
        "big endian": lambda r: np.array([r, 258], ">i4"),
    }
    for name, make in samples.items():
        everyone = [make(rank) for rank in range(size)]
        for root in range(size):
            result = st.broadcast(everyone[me], root)
            assert result.dtype == everyone[root].dtype, name
            assert result.tobytes() == everyone[root].tobytes(), name
        gathered = st.allgather(everyone[me])
        expected = np.concatenate(everyone)
        assert gathered.dtype == everyone[me].dtype, name
        assert gathered.tobytes() == expected.astype(gathered.dtype).tobytes(), name
        swapped = st.alltoall(everyone[me][:1].repeat(size))
        expected = np.concatenate([share[:1] for share in everyone])
        assert swapped.tobytes() == expected.astype(swapped.dtype).tobytes(), name
        if name != "big endian":
            with pytest.raises(ValueError, match="plain bytes"):
                st.allreduce(everyone[me])
    summed = st.allreduce(samples["big endian"](me), op=st.Sum)
    assert summed.dtype == np.dtype(">i4")
    assert summed.tolist() == [sum(range(size)), 258 * size]


def layout_body() -> None:
    import syrtos.numpy as st

    st.init()
    me, size = st.rank(), st.size()
    total = sum(range(1, size + 1))
    base = np.arange(24.0).reshape(4, 6)
    layouts = [base[:, ::2], base.T, np.asfortranarray(base), base[::-1], base[1:2, 2:3]]
    for layout in layouts:
        result = st.allreduce(layout * (me + 1), op=st.Sum)
        np.testing.assert_array_equal(result, layout * total)
        assert result.flags.c_contiguous
        assert result.flags.writeable
        # Fortran order in, in place: the user's own array changes, its neighbours do not.
        whole = base * (me + 1)
        part = whole[:, ::2]
        assert st.allreduce_(part, op=st.Sum) is part
        np.testing.assert_array_equal(part, base[:, ::2] * total)
        np.testing.assert_array_equal(whole[:, 1::2], base[:, 1::2] * (me + 1))
    read_only = np.ones(3)
    read_only.flags.writeable = False
    assert st.allreduce(read_only, op=st.Sum).tolist() == [size] * 3
    assert st.allreduce(me + 1, op=st.Sum) == total
    assert st.allreduce([me, 1.0], op=st.Sum).tolist() == [sum(range(size)), float(size)]
    gathered = st.allgather(np.ones((2, 2)))
    assert gathered.flags.writeable
    gathered += 1  # the result is the user's own


def bfloat16_body() -> None:
    import ml_dtypes

    import syrtos.numpy as st

    st.init()
    me, size = st.rank(), st.size()

    def share(rank: int, dtype: object) -> np.ndarray:
        return np.full(1001, (rank + 1) * 0.5, dtype)

    total = sum((rank + 1) * 0.5 for rank in range(size))
    dtypes = (np.float16, ml_dtypes.bfloat16, np.float32)
    for dtype in dtypes:
        mine = share(me, dtype)
        assert set(st.allreduce(mine, op=st.Sum).tolist()) == {total}
        mean = st.allreduce(mine)
        assert mean.dtype == mine.dtype
        assert set(mean.tolist()) == {float(np.float32(total / size).astype(dtype))}
        assert st.allgather(mine).dtype == mine.dtype
        assert set(st.broadcast(mine, size - 1).tolist()) == {size * 0.5}
        assert set(st.reducescatter(mine, op=st.Sum).tolist()) == {total}
    handles = [
        st.allreduce_async(share(me, dtypes[i % 3]), op=st.Sum, name=f"mixed{i}") for i in range(30)
    ]
    for i, handle in enumerate(handles):
        result = st.synchronize(handle)
        assert result.dtype == dtypes[i % 3]
        assert set(result.tolist()) == {total}
    compressed = st.allreduce(
        share(me, np.float32), op=st.Sum, compression=st.Compression.bf16, name="narrow"
    )
    assert compressed.dtype == np.float32
    assert set(compressed.tolist()) == {total}


def abandoned_body() -> None:
    import gc

    import syrtos.numpy as st

    st.init()
    # Handles and tensors are dropped while the engine still works on them.
    for step in range(200):
        st.allreduce_async_(np.full(5000, float(step)), op=st.Sum)
        st.allgather_async(np.full(100, step))
    gc.collect()
    handle = st.allreduce_async(np.ones(3), op=st.Sum)
    assert st.synchronize(handle) is st.synchronize(handle)
    assert st.poll(handle) is True
    st.barrier()
    assert st.allreduce(np.ones(2), op=st.Sum).tolist() == [st.size()] * 2


def threads_body() -> None:
    import syrtos.numpy as st

    st.init()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for step in range(50):
                mine = np.full(20, float(st.rank() + number))
                result = st.allreduce(mine, op=st.Sum, name=f"thread{number}.{step}")
                assert set(result.tolist()) == {sum(r + number for r in range(st.size())) * 1.0}
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


def fusion_body(thresholds: str) -> None:
    import os

    import syrtos.numpy as st

    os.environ["HOROVOD_FUSION_THRESHOLD"] = thresholds
    st.init()
    me, size = st.rank(), st.size()
    total = float(sum(range(1, size + 1)))
    for in_place in (False, True):
        alone = np.full(1000, me + 1.0)
        burst = [np.full(7 + i, me + 1.0) for i in range(50)]
        large = np.full(70_000, me + 1.0)
        submit = st.allreduce_async_ if in_place else st.allreduce_async
        assert set(st.synchronize(submit(alone, op=st.Sum)).tolist()) == {total}
        handles = [submit(array, op=st.Sum, name=f"b{i}") for i, array in enumerate(burst)]
        for handle in handles:
            assert set(st.synchronize(handle).tolist()) == {total}
        assert set(st.synchronize(submit(large, op=st.Sum)).tolist()) == {total}
        left = total if in_place else me + 1.0
        assert all(set(array.tolist()) == {left} for array in (alone, *burst, large))


@pytest.mark.parametrize(
    "body", [opaque_body, layout_body, bfloat16_body, abandoned_body, threads_body]
)
@pytest.mark.parametrize("ranks", [2])
def test_on_ranks(body, ranks: int) -> None:
    run_ranks(body, ranks)


@pytest.mark.parametrize("threshold", ["134217728", "1024", "0"])
def test_reductions_alone_fused_and_larger_than_the_threshold(threshold: str) -> None:
    run_ranks(fusion_body, 2, threshold)
