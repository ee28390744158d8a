"""The end of an epoch, on all ranks together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from syrtos._kinds import ReduceOp
from syrtos.keras._backend import current

__all__ = ["agree_on_stop", "end_batches", "shared_state"]


def _progress(optimizer: Any) -> tuple[float, ...]:
    """Return what tells an optimizer that has made more steps from one that has made fewer.

    The number of batches, and with loss scaling what skipped ones change.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    counted = [
        getattr(inner, "_iterations", None),  # not the property, which counts updates only
        getattr(optimizer, "step_counter", None),
        getattr(optimizer, "dynamic_scale", None),
    ]
    return tuple(float(keras.ops.convert_to_numpy(one)) for one in counted if one is not None)


def _moving_statistics(model: Any) -> list[Any]:
    """Return what batch normalisation has gathered from this rank's batches."""
    return [
        statistic
        for layer in model._flatten_layers()
        if isinstance(layer, keras.layers.BatchNormalization) and layer.built and layer.trainable
        for statistic in (layer.moving_mean, layer.moving_variance)
    ]


def _average(variables: list[Any]) -> None:
    if not variables:
        return
    values = current.grouped_allreduce(
        [current.to_tensor(variable) for variable in variables],
        op=ReduceOp.Average,
        name="moving statistics of batch normalisation",
        names=[current.name_of(variable) for variable in variables],
    )
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def shared_state(model: Any, is_local: Callable[[Any], bool]) -> list[Any]:
    """Return the weights and the optimizer's variables, without what each rank keeps for itself.

    Parameters
    ----------
    model : keras.Model
        With an optimizer that is built, or without one.
    is_local : callable
        Whether a weight is this rank's own; then so is what the optimizer keeps for it.

    Returns
    -------
    list of keras.Variable
        States of random generators are not among them, so dropout masks differ between ranks.
    """
    shared, owned = [], []
    for weight in model.weights:
        if is_local(weight):
            # Keras names what an optimizer keeps for a variable after the variable's path.
            owned.append(str(getattr(weight, "path", "")).replace("/", "_") + "_")
        else:
            shared.append(weight)
    for variable in getattr(getattr(model, "optimizer", None), "variables", ()):
        if not any(len(name) > 1 and variable.name.startswith(name) for name in owned):
            shared.append(variable)
    return shared


def end_batches(
    model: Any, average_moving_statistics: bool, is_local: Callable[[Any], bool]
) -> None:
    """Bring all ranks to one state after the last batch of an epoch, however many each had.

    A rank that comes first takes no part in the steps of the others, whose averages divide by the
    number of ranks that still work. When all have come, the state of the rank that worked longest
    goes to the others. A rank that stopped in the middle of its batches stops all.

    Parameters
    ----------
    model : keras.Model
        All ranks must call this alike.
    average_moving_statistics : bool
        Average those of batch normalisation over the ranks.
    is_local : callable
        Whether a weight is each rank's own.
    """
    last = current.join(average_active=True)
    optimizer = getattr(model, "optimizer", None)
    mine = (_progress(optimizer), bool(model.stop_training))
    of_ranks = current.allgather_object(mine)
    progress = [steps for steps, _ in of_ranks]
    moving = [variable for variable in _moving_statistics(model) if not is_local(variable)]
    if any(steps != progress[0] for steps in progress):
        # Without collectives in its last steps, the rank that worked longest need not come last.
        most = max(steps[:1] for steps in progress)
        source = last if progress[last][:1] == most else [s[:1] for s in progress].index(most)
        apart = {current.key_of(variable) for variable in moving}
        state = shared_state(model, is_local)
        current.broadcast_variables([v for v in state if current.key_of(v) not in apart], source)
    if average_moving_statistics:
        _average(moving)
    if any(stopped for _, stopped in of_ranks):
        model.stop_training = True


def agree_on_stop(model: Any) -> None:
    """End training on all ranks if a callback of any has asked for it.

    Parameters
    ----------
    model : keras.Model
        All ranks must call this alike, after the callbacks of an epoch.
    """
    if any(current.allgather_object(bool(model.stop_training))):
        model.stop_training = True
