"""What users hand in, as tensors that the ops take, and back.

TensorFlow's tensors go to the core through the ops of `syrtos.tensorflow.ops`, never through NumPy,
so there are no memory addresses here: it tells variables, sparse gradients and types apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import tensorflow as tf

from syrtos._gradients import plain_name
from syrtos.compression import Compression
from syrtos.errors import InvalidRequestError, SyrtosError

__all__ = [
    "Squeezed",
    "as_written",
    "backing_variable",
    "check_types",
    "is_sendable",
    "is_sparse",
    "key_of",
    "name_of",
    "tensors_of",
    "to_tensor",
]

_SUPPORTED = frozenset(
    {
        *(tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.bool),
        *(tf.int8, tf.int16, tf.int32, tf.int64),
        *(tf.uint8, tf.uint16, tf.uint32, tf.uint64),
        *(tf.complex64, tf.complex128),
    }
)


_Function = TypeVar("_Function", bound=Callable[..., Any])

# Autograph turns exceptions it does not know into one of its own; ours are to stay what they are.
setattr(SyrtosError, "ag_pass_through", True)  # noqa: B010


def as_written(function: _Function) -> _Function:
    """Keep autograph from rewriting a function, which would only cost time (a decorator)."""
    return cast(_Function, tf.autograph.experimental.do_not_convert(function))


def is_sparse(value: Any) -> bool:
    """Whether this is a gradient of an embedding lookup (``tf.IndexedSlices``)."""
    return isinstance(value, tf.IndexedSlices)


def backing_variable(variable: Any) -> Any:
    """Return the ``tf.Variable`` of a Keras 3 variable; anything else as it is."""
    if isinstance(variable, tf.Variable):
        return variable
    value = getattr(variable, "value", None)
    return value if isinstance(value, tf.Variable) else variable


def key_of(variable: Any) -> int:
    """Return what tells a variable, or its Keras 3 wrapper, from all others that live."""
    return id(backing_variable(variable))


def name_of(value: Any) -> str:
    """Return what messages call a tensor or variable; "" for an eager tensor."""
    if isinstance(value, tf.Tensor):
        return ""
    path = getattr(value, "path", None)  # Keras 3
    if not isinstance(path, str):
        path = str(value.name).removesuffix(":0") if isinstance(value, tf.Variable) else ""
    return plain_name(path)


def is_sendable(value: Any) -> bool:
    """Whether ranks can send each other values of this tensor's or variable's type."""
    return tf.as_dtype(value.dtype).base_dtype in _SUPPORTED  # ref variables have ref types


def check_types(values: Sequence[Any], names: Sequence[str], what: str) -> None:
    """Refuse types that no rank could send.

    Parameters
    ----------
    values : sequence of tensor
        What is to be sent.
    names : sequence of str
        Their names, "" where unknown.
    what : str
        The function, for the message.

    Raises
    ------
    InvalidRequestError
        Also a ``ValueError``; names the first such tensor.
    """
    for position, (value, name) in enumerate(zip(values, names, strict=True)):
        if not is_sendable(value):
            which = f'"{name}"' if name else f"tensor {position}"
            raise InvalidRequestError(
                f"{what}: {which} has the type {value.dtype.name}, which cannot be sent. "
                "Leave it out, or use broadcast_object for values that are no numbers."
            )


def to_tensor(value: Any, what: str) -> Any:
    """Return a dense tensor of a supported type.

    Parameters
    ----------
    value : tensor, variable, array or number
        ``IndexedSlices`` become dense.
    what : str
        The function, for the message.
    """
    if isinstance(value, tf.Tensor):
        tensor = value
    else:
        tensor = tf.convert_to_tensor(backing_variable(value))
    if tensor.dtype not in _SUPPORTED:
        check_types([tensor], [name_of(value)], what)
    return tensor


def tensors_of(values: Any, what: str) -> list[Any]:
    """Return dense tensors of a list or tuple.

    Raises
    ------
    TypeError
        For anything but a list or tuple.
    """
    if not isinstance(values, list | tuple):
        raise TypeError(f"{what} takes a list or tuple of tensors, not {type(values).__name__}.")
    return [to_tensor(value, what) for value in values]


class Squeezed:
    """One tensor on its way through a compressor.

    Parameters
    ----------
    tensor : tf.Tensor
        What the caller has.
    compression : type of Compressor
        One of `Compression`, or a class with ``compress`` and ``decompress``.
    """

    def __init__(self, tensor: Any, compression: Any) -> None:
        self._custom = None
        self._context: Any = None
        self._dtype = tensor.dtype
        self.sent = tensor
        if compression is Compression.none or compression is None:
            return
        wire = getattr(compression, "wire_dtype", None)
        if wire is None:
            self._custom = compression
            self.sent, self._context = compression.compress(tensor)
        elif tensor.dtype.is_floating:
            self.sent = tf.cast(tensor, wire)

    def open(self, result: Any) -> Any:
        """Return a result as the caller shall see it."""
        if self._custom is not None:
            return self._custom.decompress(result, self._context)
        return result if result.dtype == self._dtype else tf.cast(result, self._dtype)
