"""Gradient tapes whose gradients are those of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from syrtos._kinds import ReduceOp
from syrtos.compression import Compression
from syrtos.errors import InvalidRequestError
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.tensorflow import adapter
from syrtos.tensorflow.reducer import GradientReducer, LocalSources

__all__ = ["DistributedGradientTape", "PartialDistributedGradientTape"]


class DistributedGradientTape(tf.GradientTape):  # type: ignore[misc]
    """A ``tf.GradientTape`` whose gradients are those of all ranks.

    Parameters
    ----------
    gradtape : tf.GradientTape
        The tape that records; all its other methods are there too.
    device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, \
num_groups, groups, process_set
        See `GradientReducer`.
    scale_local_gradients : bool
        Divide the gradients of sources that `register_local_source` named by the number of ranks.

    Examples
    --------
    >>> import tensorflow as tf
    >>> import syrtos.tensorflow as hvd
    >>> hvd.init()
    >>> x = tf.Variable(3.0)
    >>> with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
    ...     loss = x * x
    >>> float(tape.gradient(loss, x))
    6.0
    """

    def __init__(
        self,
        gradtape: Any,
        device_dense: str = "",
        device_sparse: str = "",
        compression: Any = Compression.none,
        sparse_as_dense: bool = False,
        op: ReduceOp | int = ReduceOp.Average,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        groups: Any = None,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        # Not the base's __init__, which would make a tape of its own: `gradtape` does the work.
        self._wrapped = gradtape
        self._reducer = GradientReducer(
            op=ReduceOp(op),
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            gradient_predivide_factor=gradient_predivide_factor,
            num_groups=num_groups,
            groups=groups,
            process_set=process_set,
            device_dense=device_dense,
            device_sparse=device_sparse,
            adasum=True,
        )
        self._local = LocalSources(process_set, scale_local_gradients)

    def __enter__(self) -> DistributedGradientTape:
        self._wrapped.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._wrapped.__exit__(*exception)

    def __getattr__(self, name: str) -> Any:
        # What the base's methods keep in `self` is the wrapped tape's.
        return getattr(self.__dict__["_wrapped"], name)

    def watch(self, tensor: Any) -> None:
        """As ``tf.GradientTape.watch``."""
        self._wrapped.watch(tensor)

    def stop_recording(self) -> Any:
        """As ``tf.GradientTape.stop_recording``."""
        return self._wrapped.stop_recording()

    def reset(self) -> None:
        """As ``tf.GradientTape.reset``."""
        self._wrapped.reset()

    def watched_variables(self) -> Any:
        """As ``tf.GradientTape.watched_variables``."""
        return self._wrapped.watched_variables()

    def jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """As ``tf.GradientTape.jacobian``: this rank's own."""
        return self._wrapped.jacobian(*args, **kwargs)

    def batch_jacobian(self, *args: Any, **kwargs: Any) -> Any:
        """As ``tf.GradientTape.batch_jacobian``: this rank's own."""
        return self._wrapped.batch_jacobian(*args, **kwargs)

    def register_local_source(self, source: Any) -> None:
        """Leave the gradient of this source as it is on each rank.

        Parameters
        ----------
        source : variable or tensor
            One of the sources of later calls of `gradient`.
        """
        self._local.add(source)

    @adapter.as_written
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        **options: Any,
    ) -> Any:
        """Return the gradients of all ranks.

        Parameters
        ----------
        target, sources, output_gradients, **options
            As in ``tf.GradientTape.gradient``.
        use_generic_names : bool
            In graphs of ``tf.compat.v1``, match gradients by their position instead of the name of
            their node. Elsewhere that is done anyway.
        """
        grads = self._wrapped.gradient(target, sources, output_gradients, **options)
        generic = use_generic_names and not tf.compat.v1.executing_eagerly_outside_functions()

        def reduce(grads: list[Any], variables: Sequence[Any]) -> list[Any]:
            return self._reducer.reduce(grads, variables, "grad" if generic else None)

        flat = self._local.reduce(reduce, tf.nest.flatten(grads), tf.nest.flatten(sources))
        return tf.nest.pack_sequence_as(grads, flat)

    def get_local_and_global_gradients(
        self,
        target: Any,
        sources: Sequence[Any],
        output_gradients: Any = None,
        use_generic_names: bool = False,
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """Return the gradients that stay on this rank, and those of all ranks.

        Parameters
        ----------
        target, sources, output_gradients, use_generic_names
            As in `gradient`; `sources` is a list.

        Returns
        -------
        local, shared : list of (source, gradient)
            In the order of `sources`.
        """
        grads = self.gradient(target, sources, output_gradients, use_generic_names)
        pairs = list(zip(sources, grads, strict=True))
        return (
            [pair for pair in pairs if pair[0] in self._local],
            [pair for pair in pairs if pair[0] not in self._local],
        )


def _layers_of(local_layers: Any) -> list[Any]:
    if local_layers is None:
        return []
    layers = list(local_layers) if isinstance(local_layers, list | tuple | set) else [local_layers]
    for layer in layers:
        if not isinstance(layer, tf.keras.layers.Layer):
            raise InvalidRequestError(
                f"local_layers: {layer!r} is no layer. Give layers of the model, or use "
                "register_local_source for variables."
            )
    return layers


def PartialDistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: ReduceOp | int = ReduceOp.Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> DistributedGradientTape:
    """Make a tape whose gradients are those of all ranks, save for some layers.

    Parameters
    ----------
    gradtape, device_dense, device_sparse, compression, sparse_as_dense, op, \
gradient_predivide_factor, num_groups, groups, process_set, scale_local_gradients
        See `DistributedGradientTape`.
    local_layers : Keras layer or list of them, optional
        Built layers, whose gradients stay on their rank.

    Raises
    ------
    InvalidRequestError
        Something in `local_layers` is no layer; also a ``ValueError``.
    """
    layers = _layers_of(local_layers)
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    for layer in layers:
        for variable in layer.trainable_weights:
            tape.register_local_source(variable)
    return tape
