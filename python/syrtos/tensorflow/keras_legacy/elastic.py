"""Elastic training with Keras 2: the state of a model, and callbacks that keep it, as in Horovod.

::

    import syrtos.tensorflow.keras as hvd

    @hvd.elastic.run
    def train(state):
        callbacks = [
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=10),
        ]
        model.fit(data, epochs=20 - state.epoch, callbacks=callbacks)

    train(hvd.elastic.KerasState(model, batch=0, epoch=0))
"""

from __future__ import annotations

from typing import Any

from syrtos.errors import InvalidRequestError
from syrtos.tensorflow.elastic import TensorFlowState, run
from syrtos.tensorflow.keras_legacy import _objects
from syrtos.tensorflow.keras_legacy.state import (
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


class KerasState(TensorFlowState):
    """The state of a training program with a model of Keras 2.

    Parameters
    ----------
    model : tf_keras.Model
        Built.
    optimizer : optimizer, optional
        By default the one that the model was compiled with. It is built if it is not yet.
    **kwargs
        Python objects by name; each becomes an attribute.

    Raises
    ------
    InvalidRequestError
        The model is not built, or has no optimizer.
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
        if not _objects.is_built(optimizer):
            # Else the slots that the first step makes would be neither saved nor synchronised.
            _objects.build(optimizer, model.trainable_variables)
        self.model = model
        self.optimizer = optimizer
        super().__init__([*model.variables, *_objects.state_of(optimizer)], **kwargs)
