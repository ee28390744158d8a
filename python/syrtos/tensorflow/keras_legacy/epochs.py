"""The end of an epoch, on all ranks together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syrtos._objects import allgather_object
from syrtos._ops import join
from syrtos.tensorflow import adapter
from syrtos.tensorflow.keras_legacy import _objects
from syrtos.tensorflow.keras_legacy._objects import keras
from syrtos.tensorflow.keras_legacy.optimizer import hook_of
from syrtos.tensorflow.reductions import grouped_allreduce
from syrtos.tensorflow.variables import broadcast_

__all__ = ["agree_on_stop", "end_batches", "shared_state"]


def _moving_statistics(model: Any) -> list[Any]:
    """Return what batch normalisation has gathered from this rank's batches."""
    return [
        statistic
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.BatchNormalization) and layer.built and layer.trainable
        for statistic in (layer.moving_mean, layer.moving_variance)
    ]


def shared_state(model: Any, local: Mapping[int, Any]) -> list[Any]:
    """Return the variables of a model and of its optimizer that the ranks have in common.

    Parameters
    ----------
    model : tf_keras.Model
        Built, with an optimizer that is built.
    local : mapping
        Variables that stay each rank's own, by their key.

    Returns
    -------
    list of tf.Variable
        With the sums of ``backward_passes_per_step``, so that the ranks count alike.
    """
    optimizer = model.optimizer
    hook = hook_of(optimizer)
    every = [*model.variables, *_objects.state_of(optimizer), *(hook.sums() if hook else ())]
    return [v for v in every if adapter.key_of(v) not in local and adapter.is_sendable(v)]


def end_batches(model: Any, average_moving_statistics: bool, local: Mapping[int, Any]) -> None:
    """Bring all ranks to one state after the last batch of an epoch, however many each had.

    A rank that comes first takes no part in the steps of the others, whose averages divide by the
    number of ranks that still work. When all have come, the state of the rank that worked longest
    goes to the others. A rank that stopped in the middle of its batches stops all.

    Parameters
    ----------
    model : tf_keras.Model
        All ranks must call this alike.
    average_moving_statistics : bool
        Average those of batch normalisation over the ranks.
    local : mapping
        Variables that stay each rank's own, by their key.
    """
    last = join(average_active=True)
    batches = int(_objects.inner_of(model.optimizer).iterations.numpy())
    of_ranks = allgather_object((batches, bool(model.stop_training)))
    counts = [count for count, _ in of_ranks]
    moving = [v for v in _moving_statistics(model) if adapter.key_of(v) not in local]
    if len(set(counts)) > 1:
        # Without collectives in its last steps, the rank that worked longest need not come last.
        source = last if counts[last] == max(counts) else counts.index(max(counts))
        apart = {adapter.key_of(variable) for variable in moving}
        state = shared_state(model, local)
        broadcast_([v for v in state if adapter.key_of(v) not in apart], source)
    if average_moving_statistics and moving:
        names = [adapter.name_of(variable) for variable in moving]
        means = grouped_allreduce(moving, name="moving statistics", tensor_names=names)
        for variable, value in zip(moving, means, strict=True):
            variable.assign(value)
    if any(stopped for _, stopped in of_ranks):
        model.stop_training = True


def agree_on_stop(model: Any) -> None:
    """End training on all ranks if a callback of any has asked for it.

    Parameters
    ----------
    model : tf_keras.Model
        All ranks must call this alike, after the callbacks of an epoch.
    """
    if any(allgather_object(bool(model.stop_training))):
        model.stop_training = True
