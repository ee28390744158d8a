"""`DistributedOptimizer`: the user's own optimizer object, which from now on averages gradients.

See `syrtos.keras.planted` for what is changed on it, and when Keras comes there. The mean of all
ranks is clipped, weight decay and moving averages follow, and accumulation costs one reduction for
each update. The class of the object stays what it was: a saved model is what plain Keras writes,
and loads where Syrtos is not installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import keras

from syrtos._kinds import ReduceOp
from syrtos.compression import Compression
from syrtos.errors import InvalidRequestError
from syrtos.keras import planted
from syrtos.keras.planted import hook_of
from syrtos.keras.reducer import GradientReducer
from syrtos.process_sets import ProcessSet, global_process_set

__all__ = ["DistributedOptimizer", "PartialDistributedOptimizer", "hook_of"]


def _set_accumulation(optimizer: Any, passes: int) -> None:
    """Let Keras accumulate the gradients of `passes` batches."""
    if not isinstance(passes, int) or isinstance(passes, bool) or passes < 1:
        raise InvalidRequestError(f"backward_passes_per_step={passes!r}: give 1 or more.")
    present = optimizer.gradient_accumulation_steps
    if passes == 1 or present == passes:
        return
    if parts := getattr(optimizer, "optimizers", None):
        raise InvalidRequestError(
            f"backward_passes_per_step={passes}: a {type(optimizer).__name__} accumulates nothing "
            f"itself. Create its {len(parts)} optimizers with gradient_accumulation_steps={passes}."
        )
    if present is not None:
        raise InvalidRequestError(
            f"backward_passes_per_step={passes}, but the optimizer has "
            f"gradient_accumulation_steps={present}: give one of them."
        )
    if optimizer.built:
        raise InvalidRequestError(
            f"backward_passes_per_step={passes} needs an optimizer that is not built yet. Create "
            f"it with gradient_accumulation_steps={passes}."
        )
    optimizer.gradient_accumulation_steps = passes


def _distribute(
    optimizer: Any,
    reducer: GradientReducer,
    passes: int,
    average: bool,
    scale_local: bool,
) -> Any:
    """Check an optimizer and make it a distributed one."""
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        text = f"DistributedOptimizer takes a Keras 3 optimizer, not {type(optimizer).__name__}."
        if type(optimizer).__module__.partition(".")[0] == "tf_keras":
            text += " For those of Keras 2 set TF_USE_LEGACY_KERAS=1 before TensorFlow is imported."
        raise TypeError(text)
    if hook_of(optimizer) is not None:
        raise InvalidRequestError(
            f"DistributedOptimizer: this {type(optimizer).__name__} is distributed already, and "
            "would reduce its gradients twice. Wrap it once, or give a new optimizer."
        )
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    _set_accumulation(inner, passes)
    if passes > 1 and not average:
        # Keras hands over the mean of the batches.
        reducer = replace(reducer, factor=float(passes))
    planted.agree_on_finite()
    planted.distribute(optimizer, planted.Hook(reducer, scale_local))
    return optimizer


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp | int = ReduceOp.Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Make an optimizer reduce the gradients over all ranks before it clips and applies them.

    Parameters
    ----------
    optimizer : keras.optimizers.Optimizer
        Any Keras 3 optimizer, built or not, also a ``LossScaleOptimizer``.
    name : str, optional
        No effect: kept for Horovod's signature.
    device_dense, device_sparse : str
        Where TensorFlow puts the operations.
    compression : type
        What travels: ``Compression.none``, ``.fp16`` or ``.bf16``.
    sparse_as_dense : bool
        Make gradients of embeddings dense before they are reduced; else their rows are gathered,
        as if one process had looked up those of all ranks. Only TensorFlow has such gradients.
        Keras clips them, and adapts rates to them, row by row even where a row comes twice.
    gradient_predivide_factor : float
        Divide by it before the sum, and by the rest of the number of ranks after it.
    op : ReduceOp
        Average or Sum.
    backward_passes_per_step : int
        Batches for each update: sets ``gradient_accumulation_steps``.
    average_aggregated_gradients : bool
        Take the mean over these batches; else, as Horovod does, their sum.
    num_groups, groups
        Split the gradients into several requests, see `GradientReducer`.
    process_set : ProcessSet
        The ranks that take part.
    scale_local_gradients : bool
        Divide gradients of variables that ``optimizer.register_local_var`` named by the number of
        ranks, so that they weigh as much as the averaged ones.

    Returns
    -------
    keras.optimizers.Optimizer
        The same object. Saving a model saves the plain optimizer; after loading, call this again on
        ``model.optimizer``.

    Raises
    ------
    InvalidRequestError
        Arguments that contradict each other, or an optimizer that is distributed already; also a
        ``ValueError``.
    TypeError
        It is no optimizer of Keras 3.

    Notes
    -----
    All ranks must have gradients for the same variables; else all get an error that names one.

    Examples
    --------
    >>> import keras
    >>> import syrtos.keras as hvd
    >>> hvd.init()
    >>> adam = keras.optimizers.Adam(0.001 * hvd.size())
    >>> hvd.DistributedOptimizer(adam) is adam
    True
    """
    del name
    reducer = GradientReducer(
        op=ReduceOp(op),
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        devices=(device_dense, device_sparse),
    )
    return _distribute(
        optimizer,
        reducer,
        backward_passes_per_step,
        average_aggregated_gradients,
        scale_local_gradients,
    )


def _layers(layers: Any) -> list[Any]:
    """Return a list of layers."""
    given: list[Any] = [layers] if isinstance(layers, keras.layers.Layer) else list(layers or ())
    for layer in given:
        if not isinstance(layer, keras.layers.Layer):
            raise InvalidRequestError(
                f"local_layers: {layer!r} is no keras.layers.Layer. Give a layer or a list of them."
            )
    return given


def PartialDistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp | int = ReduceOp.Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Sequence[Any] | Any | None = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Make a `DistributedOptimizer` that leaves some layers to each rank.

    Parameters
    ----------
    optimizer, name, device_dense, device_sparse, compression, sparse_as_dense, \
gradient_predivide_factor, op, backward_passes_per_step, average_aggregated_gradients, groups, \
process_set
        See `DistributedOptimizer`.
    local_layers : keras.layers.Layer or list of them, optional
        Each rank updates their variables by its own gradients. They need not be built yet. Name
        their variables to `BroadcastGlobalVariablesCallback` too, unless they shall begin alike.
    scale_local_gradients : bool
        Divide the gradients of these layers by the number of ranks.

    Returns
    -------
    keras.optimizers.Optimizer
        The same object.

    Raises
    ------
    InvalidRequestError
        As for `DistributedOptimizer`; also for what is no layer.
    TypeError
        It is no optimizer of Keras 3.
    """
    own = _layers(local_layers)
    DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        backward_passes_per_step,
        average_aggregated_gradients,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    hook = hook_of(optimizer)
    assert hook is not None
    hook.local_layers.extend(own)
    return optimizer
