"""The reductions with Horovod's names and arguments, in eager mode and inside ``tf.function``."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from syrtos import _ops
from syrtos._kinds import ReduceOp
from syrtos._requests import group_of
from syrtos.compression import Compression
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.tensorflow import adapter, ops

__all__ = ["allreduce", "grouped_allreduce", "grouped_reducescatter", "reducescatter"]


def _device(name: str) -> Any:
    return tf.device(name) if name else contextlib.nullcontext()


def _check_sparse(op: ReduceOp, prescale: float, postscale: float) -> None:
    if op not in (ReduceOp.Average, ReduceOp.Sum):
        raise NotImplementedError(
            f"allreduce of IndexedSlices with op={op.name}: only Average and Sum are possible. "
            "Make it dense first: tf.convert_to_tensor(gradient), or sparse_as_dense=True of the "
            "optimizer or tape."
        )
    if prescale != 1.0 or postscale != 1.0:
        raise NotImplementedError(
            "allreduce of IndexedSlices takes no prescale_factor nor postscale_factor. "
            "Scale its values yourself, or make it dense first: tf.convert_to_tensor(gradient)."
        )


def _allreduce_sparse(slices: Sequence[Any], op: ReduceOp, group: int, **request: Any) -> list[Any]:
    """Gather the rows of all ranks: their sum, in a form that any optimizer takes."""
    parts = [part for item in slices for part in (item.values, item.indices)]
    gathered = ops.allgather(parts, group=group, **request)
    results = []
    for item, values, indices in zip(slices, gathered[::2], gathered[1::2], strict=True):
        if op == ReduceOp.Average:
            size, _ = ops.group(group)
            values /= tf.cast(size, values.dtype)
        results.append(tf.IndexedSlices(values, indices, dense_shape=item.dense_shape))
    return results


def _by_name(names: Sequence[str]) -> list[int]:
    """Return the positions of tensors in an order that is the same on all ranks.

    Ranks may list tensors of equal names in different orders. Where a name is missing or occurs
    twice, only the order of the list tells tensors apart.
    """
    if not all(names) or len(set(names)) < len(names):
        return list(range(len(names)))
    return sorted(range(len(names)), key=names.__getitem__)


def _allreduce_dense(
    tensors: Sequence[Any],
    names: Sequence[str],
    op: ReduceOp,
    compression: Any,
    **request: Any,
) -> list[Any]:
    order = _by_name(names)
    sent = [tensors[i] for i in order]
    results = list(sent)
    reduced = _allreduce_listed(sent, [names[i] for i in order], op, compression, **request)
    for i, result in zip(order, reduced, strict=True):
        results[i] = result
    return results


def _allreduce_listed(
    tensors: Sequence[Any],
    names: Sequence[str],
    op: ReduceOp,
    compression: Any,
    **request: Any,
) -> list[Any]:
    if any(names):
        request["tensor_names"] = names
    if compression is Compression.none:
        return ops.allreduce(tensors, op, **request)
    squeezed = [adapter.Squeezed(tensor, compression) for tensor in tensors]
    results = ops.allreduce([item.sent for item in squeezed], op, **request)
    return [item.open(result) for item, result in zip(squeezed, results, strict=True)]


def _allreduce_mixed(
    tensors: Sequence[Any],
    names: Sequence[str],
    op: ReduceOp,
    compression: Any,
    devices: tuple[str, str],
    scales: tuple[float, float],
    *,
    name: str | None,
    **request: Any,
) -> list[Any]:
    """Reduce dense tensors as one request, and the sparse ones as another."""
    results: list[Any] = list(tensors)
    dense: list[int] = []
    sparse: list[int] = []
    for i, tensor in enumerate(tensors):
        (sparse if adapter.is_sparse(tensor) else dense).append(i)
    if sparse:
        _check_sparse(op, *scales)
        with _device(devices[1]):
            slices = [tensors[i] for i in sparse]
            request_name = f"{name}_sparse" if name else None
            reduced = _allreduce_sparse(slices, op, name=request_name, **request)
        for i, result in zip(sparse, reduced, strict=True):
            results[i] = result
    if dense:
        with _device(devices[0]):
            values = [adapter.to_tensor(tensors[i], "allreduce") for i in dense]
            reduced = _allreduce_dense(
                values,
                [names[i] for i in dense],
                op,
                compression,
                name=name,
                prescale=scales[0],
                postscale=scales[1],
                **request,
            )
        for i, result in zip(dense, reduced, strict=True):
            results[i] = result
    return results


@adapter.as_written
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Any:
    """Reduce a tensor over all ranks.

    Parameters
    ----------
    tensor : tensor, variable, array or tf.IndexedSlices
        The same type and shape on every rank. Of ``IndexedSlices`` the rows are gathered.
    average : bool, optional
        Deprecated, use `op`.
    device_dense, device_sparse : str
        Where TensorFlow puts the operations; "" leaves it to TensorFlow.
    compression : type
        What travels, see `Compression`.
    op : ReduceOp, optional
        Average (the default), Sum, Adasum, Min, Max or Product.
    prescale_factor, postscale_factor : float
        Factors before and after the reduction.
    name : str, optional
        Equal on all ranks; without one, calls are matched by their order.
    process_set : ProcessSet
        The ranks that take part; all of them must call.
    ignore_name_scope : bool
        In a graph, take the last component of the name only.

    Returns
    -------
    tf.Tensor or tf.IndexedSlices
        New, of the same type. Differentiable.

    Raises
    ------
    tf.errors.FailedPreconditionError
        The ranks disagree about type, shape or options, or `init` was not called.
    tf.errors.InvalidArgumentError
        No rank could do this.
    tf.errors.AbortedError
        Another rank died, or has shut down.
    tf.errors.DeadlineExceededError
        A limit that the user set has passed.

    Examples
    --------
    >>> import syrtos.tensorflow as hvd
    >>> hvd.init()
    >>> hvd.allreduce([1.0, 2.0], op=hvd.Sum).numpy().tolist()
    [1.0, 2.0]
    """
    return grouped_allreduce(
        [tensor],
        average,
        device_dense,
        device_sparse,
        compression,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        ignore_name_scope,
        name,
    )[0]


@adapter.as_written
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
    *,
    tensor_names: Sequence[str] = (),
) -> list[Any]:
    """Reduce several tensors, of any types, as one request.

    Parameters
    ----------
    tensors : list of tensor or tf.IndexedSlices
        Equally many on every rank.
    average, device_dense, device_sparse, compression, op, prescale_factor, postscale_factor, \
process_set, ignore_name_scope, name
        As in `allreduce`.
    tensor_names : sequence of str
        What messages call the tensors; by default the names of variables. If all are different,
        tensors are paired by them, whatever their order on each rank.

    Returns
    -------
    list
        In the order of `tensors`.
    """
    chosen = _ops.reduce_op(average, op)
    group = group_of(process_set)
    if not isinstance(tensors, list | tuple):
        raise TypeError(
            f"grouped_allreduce takes a list or tuple of tensors, not {type(tensors).__name__}."
        )
    return _allreduce_mixed(
        tensors,
        tensor_names or [adapter.name_of(tensor) for tensor in tensors],
        chosen,
        compression,
        (device_dense, device_sparse),
        (prescale_factor, postscale_factor),
        group=group,
        name=name,
        ignore_name_scope=ignore_name_scope,
    )


@adapter.as_written
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: ReduceOp | int = ReduceOp.Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Reduce a tensor over all ranks and leave each its share of the rows.

    Parameters
    ----------
    tensor : tensor, shape (rows, ...)
        The first ``rows % ranks`` ranks get one row more than the others.
    device_dense, compression, op, name, process_set, ignore_name_scope, prescale_factor, \
postscale_factor
        As in `allreduce`; `op` is Average or Sum.

    Returns
    -------
    tf.Tensor
        Differentiable.
    """
    return _reducescatter(
        [tensor],
        device_dense,
        compression,
        op,
        process_set,
        prescale=prescale_factor,
        postscale=postscale_factor,
        name=name,
        ignore_name_scope=ignore_name_scope,
    )[0]


@adapter.as_written
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: ReduceOp | int = ReduceOp.Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Reduce-scatter several tensors as one request.

    Parameters
    ----------
    tensors : list of tensor
        Equally many on every rank.
    device_dense, compression, op, process_set, prescale_factor, postscale_factor
        As in `reducescatter`.

    Returns
    -------
    list of tf.Tensor
    """
    return _reducescatter(
        tensors,
        device_dense,
        compression,
        op,
        process_set,
        prescale=prescale_factor,
        postscale=postscale_factor,
    )


def _reducescatter(
    tensors: Sequence[Any],
    device: str,
    compression: Any,
    op: ReduceOp | int,
    process_set: ProcessSet,
    **request: Any,
) -> list[Any]:
    chosen = _ops.reduce_op(None, op)
    group = group_of(process_set)
    with _device(device):
        values = adapter.tensors_of(tensors, "reducescatter")
        if not values:
            return []
        squeezed = [adapter.Squeezed(value, compression) for value in values]
        results = ops.reducescatter(
            [item.sent for item in squeezed], chosen, group=group, **request
        )
        return [item.open(result) for item, result in zip(squeezed, results, strict=True)]
