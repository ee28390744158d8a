"""A collective as an operation of a graph that XLA compiles.

All arrays of a collective go into one call of a handler in ``_tensorflow_xla.so``. Before them goes
a number that gives calls their order, see `syrtos.tensorflow._xla`. Two forms, one for each
interface of XLA (`_xla_library`): a module of StableHLO around a typed call, or an untyped call
that is described by a line of text.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from syrtos.errors import BackendUnavailableError
from syrtos.tensorflow import _xla_library

__all__ = ["SEPARATOR", "collective", "group"]

#: Between the names of tensors in one attribute.
SEPARATOR = "\x1f"

_COLLECTIVE = "syrtos_tensorflow_collective"
_GROUP = "syrtos_tensorflow_group"
#: The oldest form of StableHLO that has typed calls; TensorFlow 2.18 reads it.
_STABLEHLO = "1.3.0"

# TensorFlow's types: how StableHLO writes them, and their numbers in XLA.
_TYPES = {
    tf.bool: ("i1", 1),
    tf.int8: ("i8", 2),
    tf.int16: ("i16", 3),
    tf.int32: ("i32", 4),
    tf.int64: ("i64", 5),
    tf.uint8: ("ui8", 6),
    tf.uint16: ("ui16", 7),
    tf.uint32: ("ui32", 8),
    tf.uint64: ("ui64", 9),
    tf.float16: ("f16", 10),
    tf.bfloat16: ("bf16", 16),
    tf.float32: ("f32", 11),
    tf.float64: ("f64", 12),
    tf.complex64: ("complex<f32>", 15),
    tf.complex128: ("complex<f64>", 18),
}

Attributes = Mapping[str, int | str]


def _tensorflow_xla() -> Any:
    """Return TensorFlow's functions for calls of XLA, which are not public."""
    try:
        from tensorflow.compiler.tf2xla.python import xla
    except ImportError as error:
        raise BackendUnavailableError(
            f"syrtos: TensorFlow {tf.__version__} has moved what calls foreign functions of XLA "
            f"({error}). Use jit_compile=False in tf.function(...) or model.compile(...)."
        ) from error
    return xla


def _type(spec: Any) -> str:
    dims = "".join(f"{dim}x" for dim in spec.shape)
    return f"tensor<{dims}{_TYPES[spec.dtype][0]}>"


def _quoted(text: str) -> str:
    """Return a string as MLIR writes it."""
    plain = "".join(chr(byte) if _is_plain(byte) else f"\\{byte:02X}" for byte in text.encode())
    return f'"{plain}"'


def _is_plain(byte: int) -> bool:
    return 0x20 <= byte < 0x7F and byte not in b'"\\'


def _config(attributes: Attributes) -> str:
    values = (
        f"{key} = {_quoted(value) if isinstance(value, str) else f'{value} : i64'}"
        for key, value in attributes.items()
    )
    return ", ".join(values)


@functools.lru_cache(maxsize=256)
def _module(
    target: str, inputs: tuple[str, ...], outputs: tuple[str, ...], config: str, aliased: bool
) -> bytes:
    """Return a module of StableHLO whose only work is one call of a handler."""
    from tensorflow.compiler.mlir.stablehlo import stablehlo

    arguments = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate(inputs))
    operands = ", ".join(f"%a{i}" for i in range(len(inputs)))
    several = len(outputs) > 1
    results = ", ".join(f"%r#{i}" if several else "%r" for i in range(len(outputs)))
    types = ", ".join(outputs)
    # A result may take the memory of its input; XLA copies inputs that are still needed.
    aliases = ", ".join(
        f"#stablehlo.output_operand_alias<output_tuple_indices = [{i if several else ''}], "
        f"operand_index = {i}, operand_tuple_indices = []>"
        for i in range(len(outputs) if aliased else 0)
    )
    text = f"""module @syrtos {{
  func.func public @main({arguments}) -> ({types}) {{
    %r{f":{len(outputs)}" if several else ""} = stablehlo.custom_call @{target}({operands}) {{
      api_version = 4 : i32, has_side_effect = true, backend_config = {{{config}}},
      output_operand_aliases = [{aliases}]
    }} : ({", ".join(inputs)}) -> ({types})
    return {results} : {types}
  }}
}}
"""
    module: bytes = stablehlo.serialize_portable_artifact_str(text, _STABLEHLO)
    return module


def _typed(
    target: str, tensors: Sequence[Any], outputs: Sequence[Any], config: str, aliased: bool
) -> list[Any]:
    _xla_library.load_typed()
    xla = _tensorflow_xla()
    results = xla.call_module(
        list(tensors),
        version=min(9, xla.call_module_maximum_supported_version()),
        module=_module(
            target, tuple(map(_type, tensors)), tuple(map(_type, outputs)), config, aliased
        ),
        Tout=[spec.dtype for spec in outputs],
        Sout=[spec.shape for spec in outputs],
        platforms=["CPU"],
    )
    return list(results)


def _untyped(
    target: str, tensors: Sequence[Any], outputs: Sequence[Any], description: str
) -> list[Any]:
    _xla_library.load_untyped()
    results = _tensorflow_xla().custom_call_v2(
        f"{target}_untyped",
        list(tensors),
        list(outputs),
        backend_config=description,
        has_side_effect=True,
    )
    return list(results)


def _description(tensors: Sequence[Any], outputs: Sequence[Any], attributes: Attributes) -> str:
    """Return what ``Description`` in ``_tensorflow_xla.so`` reads."""
    words = [
        str(value) if isinstance(value, int) else value.encode().hex() or "-"
        for value in attributes.values()
    ]
    words.append(str(len(tensors)))
    for tensor, output in zip(tensors, outputs, strict=True):
        dims = [(len(shape), *shape) for shape in (tensor.shape, output.shape)]
        words += map(str, (_TYPES[tensor.dtype][1], *dims[0], *dims[1]))
    return " ".join(words)


def collective(
    order: Any, tensors: Sequence[Any], outputs: Sequence[Any], attributes: Attributes
) -> tuple[Any, list[Any]]:
    """Add a collective to the graph that is being traced.

    Parameters
    ----------
    order : tf.Tensor of int32, shape ()
        From the collective before.
    tensors : sequence of tf.Tensor
        Of fully known shapes.
    outputs : sequence of tf.TensorSpec
        Of the results, likewise.
    attributes : mapping
        In the order in which ``Description`` takes them: kind, group, op, prescale_bits,
        postscale_bits, root, size, position, name, part_names.

    Returns
    -------
    order : tf.Tensor of int32, shape ()
        For the collective after.
    results : list of tf.Tensor

    Raises
    ------
    BackendUnavailableError
        This TensorFlow cannot do it; the text says why.
    """
    tensors = [order, *tensors]
    outputs = [tf.TensorSpec([], tf.int32), *outputs]
    if _xla_library.is_typed(tf.__version__):
        aliased = [t.shape for t in tensors] == [o.shape for o in outputs]
        results = _typed(_COLLECTIVE, tensors, outputs, _config(attributes), aliased)
    else:
        description = _description(tensors, outputs, attributes)
        results = _untyped(_COLLECTIVE, tensors, outputs, description)
    return results[0], results[1:]


def group(number: int) -> tuple[Any, Any]:
    """Add to the graph what tells the number of ranks of a group and this rank's position.

    Parameters
    ----------
    number : int
        Number of the process set.

    Returns
    -------
    size, rank : tf.Tensor of int32, shape ()
    """
    outputs = [tf.TensorSpec([], tf.int32)] * 2
    if _xla_library.is_typed(tf.__version__):
        size, rank = _typed(_GROUP, [], outputs, _config({"group": number}), aliased=False)
    else:
        size, rank = _untyped(_GROUP, [], outputs, str(number))
    return size, rank
