"""Elastic training with TensorFlow, with Horovod's names.

::

    import syrtos.tensorflow as hvd

    @hvd.elastic.run
    def train(state):
        for state.step in range(state.step, 1000):
            ...
            state.commit()

    state = hvd.elastic.TensorFlowState(model.variables + optimizer.variables, step=0)
    train(state)

`syrtos.elastic` says what happens on a failure, and what this version does not do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from syrtos import elastic
from syrtos.errors import InvalidRequestError, PeerLostError
from syrtos.tensorflow import _library, adapter
from syrtos.tensorflow.functions import broadcast_object
from syrtos.tensorflow.variables import broadcast_variables

__all__ = ["TensorFlowKerasState", "TensorFlowState", "run"]


def is_ours(error: Any) -> bool:
    """Whether an error of TensorFlow comes from a collective of Syrtos."""
    return any(prefix + op in error.message for prefix in _library.PATHS for op in _library.OPS)


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Make `func` start again from the last commit when another rank fails.

    Parameters
    ----------
    func : callable
        Called as ``func(state, *args, **kwargs)``, see `syrtos.elastic.run`. What TensorFlow raises
        when a collective has lost a rank (``AbortedError``) counts as such a failure.

    Returns
    -------
    callable
        To be called like `func`.
    """

    @functools.wraps(func)
    def translated(state: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return func(state, *args, **kwargs)
        except tf.errors.AbortedError as error:
            if is_ours(error):
                raise PeerLostError(error.message) from error
            raise

    return elastic.run(translated)


class _Values:
    """Reads, writes and broadcasts variables, in eager mode or through a session.

    Parameters
    ----------
    variables : sequence of variable
        A list of them.
    session : tf.compat.v1.Session, optional
        In graphs of ``tf.compat.v1``; operations are added to its graph now, and never later.
    """

    def __init__(self, variables: Sequence[Any], session: Any) -> None:
        self._variables = [adapter.backing_variable(variable) for variable in variables]
        self._session = session
        if session is not None:
            with session.graph.as_default(), tf.name_scope("elastic_state"):
                self._fed = [
                    tf.compat.v1.placeholder(variable.dtype.base_dtype, variable.shape)
                    for variable in self._variables
                ]
                self._assign = tf.group(
                    *(v.assign(x) for v, x in zip(self._variables, self._fed, strict=True))
                )
                self._broadcast = broadcast_variables(self._variables, root_rank=0)

    def read(self) -> list[Any]:
        """Return copies of all values."""
        if self._session is not None:
            return list(self._session.run(self._variables))
        return [variable.numpy().copy() for variable in self._variables]

    def write(self, values: Sequence[Any]) -> None:
        """Give the variables these values."""
        if self._session is not None:
            self._session.run(self._assign, dict(zip(self._fed, values, strict=True)))
            return
        for variable, value in zip(self._variables, values, strict=True):
            variable.assign(value)

    def broadcast(self) -> None:
        """Give the variables rank 0's values."""
        if self._session is not None:
            self._session.run(self._broadcast)
        else:
            broadcast_variables(self._variables, root_rank=0)


class TensorFlowState(elastic.ObjectState):
    """The state of a training program: variables, and Python objects.

    Parameters
    ----------
    variables : sequence of tf.Variable or Keras variable, optional
        By default all global variables of the default graph (``tf.compat.v1``).
    session : tf.compat.v1.Session, optional
        Where the variables of a graph live; by default the default session.
    **kwargs
        Python objects by name; each becomes an attribute.

    Raises
    ------
    InvalidRequestError
        There are no variables, or a graph's and no session. Otherwise as
        `syrtos.elastic.ObjectState`.
    """

    def __init__(
        self, variables: Sequence[Any] | None = None, session: Any = None, **kwargs: Any
    ) -> None:
        eager = tf.compat.v1.executing_eagerly_outside_functions()
        chosen = list(variables or ([] if eager else tf.compat.v1.global_variables()))
        if not chosen:
            raise InvalidRequestError(
                f"{type(self).__name__}: there are no variables. Give some; in eager mode there "
                "are no global ones."
            )
        if not eager:
            session = session or tf.compat.v1.get_default_session()
            if session is None:
                raise InvalidRequestError(
                    f"{type(self).__name__}: give the session in which the variables live."
                )
        self.variables = chosen
        self.session = session
        self._tensors = _Values(chosen, None if eager else session)
        self._saved_values = self._tensors.read()
        super().__init__(broadcast_object, None, **kwargs)

    def save(self) -> None:
        """Keep copies of everything."""
        self._saved_values = self._tensors.read()
        super().save()

    def restore(self) -> None:
        """Bring everything back to the last copy."""
        self._tensors.write(self._saved_values)
        super().restore()

    def sync(self) -> None:
        """Bring everything to what it is on rank 0, and keep a copy of that."""
        self._tensors.broadcast()
        self._saved_values = self._tensors.read()
        super().sync()


class TensorFlowKerasState(TensorFlowState):
    """The state of a training program with a Keras model.

    Parameters
    ----------
    model : keras.Model
        Built.
    optimizer : keras.optimizers.Optimizer, optional
        By default the one that the model was compiled with. It is built if it is not yet.
    backend : Any
        No effect: kept for Horovod's signature.
    **kwargs
        Python objects by name; each becomes an attribute.

    Raises
    ------
    InvalidRequestError
        The model is not built, or has no optimizer.
    """

    def __init__(
        self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any
    ) -> None:
        del backend
        if not model.built:
            raise InvalidRequestError(
                f"{type(self).__name__}: the model is not built, so it has no variables yet. Call "
                "model.build(input_shape), or the model on a batch."
            )
        optimizer = optimizer or getattr(model, "optimizer", None)
        if optimizer is None:
            raise InvalidRequestError(
                f"{type(self).__name__}: give the optimizer, or compile the model with one."
            )
        if not optimizer.built:
            # Else the slots that the first step makes would be neither saved nor synchronised.
            optimizer.build(model.trainable_variables)
        self.model = model
        self.optimizer = optimizer
        super().__init__([*model.variables, *optimizer.variables], **kwargs)
