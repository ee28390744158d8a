"""What the checks need to know of a front end; one line in `LOADERS` for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from syrtos.errors import MismatchError

_REAL = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class FrontEnd:
    name: str
    #: The module, used by keywords only: the order of arguments is its own affair.
    hvd: Any
    tensor: Callable[[np.ndarray], Any]
    array: Callable[[Any], np.ndarray]
    #: Has functions ending in _async.
    handles: bool = True
    #: Its arrays can change, so there are functions ending in an underscore.
    in_place: bool = True
    #: What it raises for impossible requests, and for ranks that disagree.
    invalid: type[BaseException] = ValueError
    mismatch: type[BaseException] = MismatchError
    numbers: tuple[str, ...] = (*_REAL, *_FLOATS)
    complexes: tuple[str, ...] = ("complex64", "complex128")
    floats: tuple[str, ...] = _FLOATS

    @property
    def ranks(self) -> range:
        return range(self.hvd.size())


def _numpy() -> FrontEnd:
    import syrtos.numpy as hvd

    return FrontEnd("numpy", hvd, tensor=lambda array: array, array=lambda tensor: tensor)


def _tensorflow() -> FrontEnd:
    import tensorflow as tf

    import syrtos.tensorflow as hvd

    return FrontEnd(
        "tensorflow",
        hvd,
        tensor=tf.convert_to_tensor,
        array=lambda tensor: np.asarray(tensor.numpy()),  # a scalar for shape ()
        handles=False,
        invalid=tf.errors.InvalidArgumentError,
        mismatch=tf.errors.FailedPreconditionError,
    )


def _torch() -> FrontEnd:
    import ml_dtypes
    import torch

    import syrtos.torch as hvd

    def tensor(array: np.ndarray) -> Any:
        if array.dtype == ml_dtypes.bfloat16:
            return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
        return torch.from_numpy(array.copy())

    def array(tensor: Any) -> np.ndarray:
        if tensor.dtype == torch.bfloat16:
            return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
        return tensor.numpy()

    return FrontEnd("torch", hvd, tensor=tensor, array=array)


def _jax() -> FrontEnd:
    import jax

    import syrtos.jax as hvd

    jax.config.update("jax_enable_x64", True)
    return FrontEnd("jax", hvd, tensor=jax.numpy.asarray, array=np.asarray, in_place=False)


LOADERS = {"numpy": _numpy, "tensorflow": _tensorflow, "torch": _torch, "jax": _jax}


def load(name: str) -> FrontEnd:
    return LOADERS[name]()
