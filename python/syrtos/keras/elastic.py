"""Elastic training with Keras: the state of a model, and callbacks that keep it, as in Horovod.

::

    import syrtos.keras as hvd

    @hvd.elastic.run
    def train(state):
        callbacks = [
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=10),
        ]
        model.fit(data, epochs=20 - state.epoch, callbacks=callbacks)

    train(hvd.elastic.KerasState(model, batch=0, epoch=0))

`syrtos.elastic` says what happens on a failure, and what this version does not do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from syrtos import elastic
from syrtos.errors import InvalidRequestError
from syrtos.keras._backend import current
from syrtos.keras.callbacks.state import (
    CommitStateCallback,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
)

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Make `func` start again from the last commit when another rank fails.

    Parameters
    ----------
    func : callable
        Called as ``func(state, *args, **kwargs)``, see `syrtos.elastic.run`. What the backend
        raises when a collective has lost a rank counts as such a failure.

    Returns
    -------
    callable
        To be called like `func`.
    """

    @functools.wraps(func)
    def translated(state: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return func(state, *args, **kwargs)
        except Exception as error:
            ours = current.as_our_error(error)
            if ours is None:
                raise
            raise ours from error

    return elastic.run(translated)


class KerasState(elastic.ObjectState):
    """The state of a training program: a model with its optimizer, and Python objects.

    Parameters
    ----------
    model : keras.Model
        Built.
    optimizer : keras.optimizers.Optimizer, optional
        By default the one that the model was compiled with. It is built if it is not yet.
    **kwargs
        Python objects by name; each becomes an attribute.

    Raises
    ------
    InvalidRequestError
        The model is not built, or has no optimizer. Otherwise as `syrtos.elastic.ObjectState`.

    Notes
    -----
    Saved and restored are all variables of the model; synchronised are the weights and the
    optimizer's, so that random generators, of dropout for instance, stay different on the ranks.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if not model.built:
            raise InvalidRequestError(
                "KerasState: the model is not built, so it has no variables yet. Call "
                "model.build(input_shape), or the model on a batch."
            )
        optimizer = optimizer or getattr(model, "optimizer", None)
        if optimizer is None:
            raise InvalidRequestError(
                "KerasState: give the optimizer, or compile the model with one."
            )
        if not optimizer.built:
            # Else the slots that the first step makes would be neither saved nor synchronised.
            optimizer.build(model.trainable_variables)
        self.model = model
        self.optimizer = optimizer
        self._saved_values = self._read()
        super().__init__(current.broadcast_object, None, **kwargs)

    def _variables(self) -> list[Any]:
        return [*self.model.variables, *self.optimizer.variables]

    def _read(self) -> list[np.ndarray[Any, Any]]:
        # In fit on JAX, the variables hold nothing until they are asked to.
        sync = getattr(self.model, "jax_state_sync", None)
        if sync is not None:
            sync()
        return [np.array(keras.ops.convert_to_numpy(one)) for one in self._variables()]

    def save(self) -> None:
        """Keep copies of everything."""
        self._saved_values = self._read()
        super().save()

    def restore(self) -> None:
        """Bring everything back to the last copy."""
        for variable, value in zip(self._variables(), self._saved_values, strict=True):
            variable.assign(value)
        super().restore()

    def sync(self) -> None:
        """Bring everything to what it is on rank 0, and keep a copy of that."""
        current.broadcast_variables([*self.model.weights, *self.optimizer.variables], 0)
        self._saved_values = self._read()
        super().sync()
