"""What the NumPy adapter makes of arrays, without other ranks."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from syrtos.adapter import dtype_number
from syrtos.compression import Compression, numpy_dtype
from syrtos.errors import InvalidRequestError
from syrtos.numpy.adapter import ADAPTER

OPAQUE = dtype_number("opaque")


def view(tensor: object, in_place: bool = False):
    return ADAPTER.view(tensor, in_place=in_place, what='allreduce "x"')


def test_contiguous_arrays_are_not_copied() -> None:
    for array in (np.arange(6.0).reshape(2, 3), np.array(3), np.zeros((0, 2)), np.arange(9)[3:]):
        seen = view(array)
        assert seen.owner is array
        assert seen.pointer == array.ctypes.data
        assert seen.shape == array.shape


@pytest.mark.parametrize(
    "array",
    [
        np.arange(10)[::2],
        np.arange(6).reshape(2, 3).T,
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(4)[::-1],
        np.frombuffer(b"\0" + np.arange(3.0).tobytes(), np.uint8)[1:].view(np.float64),
    ],
    ids=["strided", "transposed", "fortran", "reversed", "unaligned"],
)
def test_other_layouts_are_copied(array: np.ndarray) -> None:
    seen = view(array)
    assert seen.owner is not array
    assert seen.owner.flags.c_contiguous
    np.testing.assert_array_equal(seen.owner, array)
    assert seen.owner.dtype == array.dtype


def test_in_place_results_of_other_layouts_are_written_back() -> None:
    whole = np.arange(10)
    seen = view(whole[::2], in_place=True)
    seen.owner[...] = -1
    result = ADAPTER.write_back(seen)
    assert result is seen.target
    assert whole.tolist() == [-1, 1, -1, 3, -1, 5, -1, 7, -1, 9]


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        ("bool", "bool"),
        ("int8", "int8"),
        ("longlong", "int64"),
        ("uintp", "uint64"),
        ("float16", "float16"),
        ("complex128", "complex128"),
        (ml_dtypes.bfloat16, "bfloat16"),
    ],
)
def test_dtypes_have_their_numbers(dtype: object, number: str) -> None:
    assert view(np.zeros(2, dtype)).dtype == dtype_number(number)


@pytest.mark.parametrize(
    "dtype",
    [
        "longdouble",
        "clongdouble",
        "datetime64[s]",
        "timedelta64[ns]",
        "V7",
        "S5",
        "U3",
        ml_dtypes.float8_e4m3fn,
        [("a", "<i4"), ("b", ">f8")],
    ],
)
def test_other_dtypes_of_fixed_size_travel_as_bytes(dtype: object) -> None:
    array = np.zeros((2, 2), dtype)
    seen = view(array)
    assert (seen.dtype, seen.item_bytes) == (OPAQUE, array.itemsize)
    assert seen.owner is array


@pytest.mark.parametrize(
    "tensor",
    [
        np.array([{}, None]),
        [1, "a", None],
        np.zeros(2, [("a", object)]),
        np.array([2**70]),
        *([np.array(["a"], np.dtypes.StringDType())] if hasattr(np.dtypes, "StringDType") else []),
    ],
)
def test_references_to_objects_are_refused_by_name(tensor: object) -> None:
    dtype = str(np.asarray(tensor).dtype)
    with pytest.raises(TypeError, match='allreduce "x"') as caught:
        view(tensor)
    assert dtype in str(caught.value)
    assert "broadcast_object" in str(caught.value)


def test_scalars_and_lists_become_arrays() -> None:
    assert view(3).owner.dtype == np.int64
    assert view(3).shape == ()
    assert view(True).owner.dtype == np.bool_
    assert view([[1.5], [2.5]]).shape == (2, 1)
    assert view(np.float32(2)).owner.dtype == np.float32


def test_ragged_lists_and_masked_arrays_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="rectangular"):
        view([[1], [2, 3]])
    with pytest.raises(TypeError, match="mask"):
        view(np.ma.masked_array([1, 2], [True, False]))
    with pytest.raises(TypeError, match="no bytes"):
        view(np.zeros(2, "V0"))


def test_in_place_needs_a_writable_array() -> None:
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(InvalidRequestError, match="read-only"):
        view(frozen, in_place=True)
    with pytest.raises(TypeError, match="list"):
        view([1, 2], in_place=True)
    assert view(frozen).owner is frozen  # reading is fine


def test_big_endian_arrays_come_back_big_endian() -> None:
    array = np.arange(3, dtype=">f4")
    seen = view(array)
    assert seen.owner.dtype == np.dtype("<f4")
    output = ADAPTER.empty_like(seen)
    output.owner[...] = seen.owner * 2
    result = ADAPTER.finish(output)
    assert result.dtype == array.dtype
    assert result.tolist() == [0, 2, 4]
    in_place = view(array, in_place=True)
    in_place.owner[...] += 1
    assert ADAPTER.write_back(in_place).tolist() == [1, 2, 3]
    assert array.dtype == np.dtype(">f4")


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_compressors_cast_floats_only(name: str) -> None:
    compressor = getattr(Compression, name)
    narrow, context = compressor.compress(np.array([1.5, 2.5]))
    assert narrow.dtype == numpy_dtype(compressor.wire_dtype)
    wide = compressor.decompress(narrow, context)
    assert wide.dtype == np.float64
    assert wide.tolist() == [1.5, 2.5]
    ints = np.array([1, 2])
    same, context = compressor.compress(ints)
    assert same is ints
    assert compressor.decompress(same, context) is ints


def test_bfloat16_without_ml_dtypes_says_what_to_install() -> None:
    script = """
import sys
sys.modules["ml_dtypes"] = None
from syrtos.compression import numpy_dtype
from syrtos.errors import BackendUnavailableError
try:
    numpy_dtype("bfloat16")
except BackendUnavailableError as error:
    assert "pip install ml_dtypes" in str(error)
else:
    raise SystemExit("no error")
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_compressor_of_the_user_is_called() -> None:
    import syrtos.numpy as st

    class Halve(st.Compression.none):
        @staticmethod
        def compress(tensor):
            return tensor / 2, "context"

        @staticmethod
        def decompress(tensor, ctx):
            assert ctx == "context"
            return tensor * 2

    st.init()
    assert st.allreduce(np.array([3.0]), compression=Halve).tolist() == [3.0]
    st.shutdown()


def test_every_example_in_the_documentation_runs() -> None:
    script = """
import doctest, sys
import syrtos.numpy, syrtos._basics, syrtos._objects, syrtos.process_sets
from syrtos.numpy import functions, gathers, reductions, scatters
modules = (syrtos.numpy, functions, gathers, reductions, scatters, syrtos._basics,
           syrtos._objects, syrtos.process_sets)
attempted = 0
for module in modules:
    result = doctest.testmod(module)
    attempted += result.attempted
    if result.failed:
        sys.exit(f"{module.__name__}: {result.failed} examples failed")
print(attempted)
"""
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert int(result.stdout) > 100
