"""Equal beginnings: variables that get the root's values, eagerly and in graphs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from syrtos import _objects
from syrtos._requests import group_of
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.tensorflow import adapter, ops

__all__ = [
    "BroadcastGlobalVariablesHook",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_variables",
]

_log = logging.getLogger("syrtos")

# Of the request in which the ranks tell each other what variables they have.
_LIST_NAME = "syrtos.broadcast_global_variables"


def _root_values(
    variables: Sequence[Any], root_rank: int, name: str | None, process_set: ProcessSet
) -> list[Any]:
    """Return the root's values of variables, as one request."""
    names = [adapter.name_of(variable) for variable in variables]
    backing = [adapter.backing_variable(variable) for variable in variables]
    group = group_of(process_set)
    adapter.check_types(backing, names, "broadcast_variables")
    if not variables:
        return []
    return ops.broadcast(
        [tf.convert_to_tensor(variable) for variable in backing],
        int(root_rank),
        group=group,
        name=name,
        tensor_names=names,
    )


@adapter.as_written
def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Give variables the root's values, as one request.

    Parameters
    ----------
    variables : list of tf.Variable or Keras variable
        The same types and shapes on every rank. Resource and ref variables may be mixed.
    root_rank, name, process_set
        As in `broadcast`.

    Returns
    -------
    list
        The variables; in a graph of ``tf.compat.v1`` the assigned values, which must be run.
    """
    variables = list(variables)
    values = _root_values(variables, root_rank, name, process_set)
    assigned = [
        adapter.backing_variable(variable).assign(value)
        for variable, value in zip(variables, values, strict=True)
    ]
    return variables if tf.compat.v1.executing_eagerly_outside_functions() else assigned


@adapter.as_written
def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Give variables the root's values, for equal beginnings on all ranks.

    Parameters
    ----------
    variables : list of tf.Variable or Keras variable
        Such as ``model.weights + optimizer.variables``.
    root_rank : int
        A global rank.
    process_set : ProcessSet
        The ranks that take part.
    inplace : bool
        No effect: kept for Horovod's signature.

    Returns
    -------
    None or tf.Operation
        In a graph of ``tf.compat.v1`` the operation to be run; may be run several times, also after
        ``graph.finalize()``.

    Raises
    ------
    InvalidRequestError
        A variable holds strings or another type that cannot be sent; the text names it.
    """
    del inplace
    variables = list(variables)
    if tf.compat.v1.executing_eagerly_outside_functions():
        broadcast_(variables, root_rank, process_set=process_set)
        return None
    values = _root_values(variables, root_rank, None, process_set)
    assigned = [
        adapter.backing_variable(variable).assign(value, read_value=False)
        for variable, value in zip(variables, values, strict=True)
    ]
    return tf.group(*assigned)


def _common_variables(variables: Sequence[Any], root_rank: int) -> list[Any]:
    """Return the variables that all ranks have, in the root's order; warn of all others."""
    names = [str(variable.name).removesuffix(":0") for variable in variables]
    of_ranks = _objects.allgather_object(names, _LIST_NAME)
    shared = set(names).intersection(*of_ranks)
    for rank, there in enumerate(of_ranks):
        others = [name for name in there if name not in shared]
        if others:
            _log.warning(
                "broadcast_global_variables: rank %d has variables that not all ranks have, and "
                "they keep their values: %s",
                rank,
                ", ".join(others),
            )
    by_name = dict(zip(names, variables, strict=True))
    return [by_name[name] for name in of_ranks[root_rank] if name in shared]


def broadcast_global_variables(root_rank: int) -> Any:
    """Give all global variables of the default graph the root's values.

    To be called on all ranks, when the graph has all its variables. Variables that some ranks lack
    are left alone, and a warning lists them; so are variables of strings and other types that
    cannot be sent.

    Parameters
    ----------
    root_rank : int
        A global rank.

    Returns
    -------
    tf.Operation
        To be run after the variables' initializers; may be run several times, also after
        ``graph.finalize()``.

    Raises
    ------
    RuntimeError
        In eager mode, where there are no global variables.
    """
    if tf.compat.v1.executing_eagerly_outside_functions():
        raise RuntimeError(
            "broadcast_global_variables works in graphs of tf.compat.v1 only. In eager mode call "
            "broadcast_variables(model.variables + optimizer.variables, root_rank)."
        )
    every = tf.compat.v1.global_variables()
    skipped = [variable for variable in every if not adapter.is_sendable(variable)]
    for variable in skipped:
        _log.warning(
            'broadcast_global_variables: "%s" has the type %s, which cannot be sent; it keeps its '
            "value.",
            adapter.name_of(variable),
            variable.dtype.name,
        )
    sendable = [variable for variable in every if adapter.is_sendable(variable)]
    return broadcast_variables(_common_variables(sendable, root_rank), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Gives all global variables the root's values when a ``MonitoredSession`` begins.

    Parameters
    ----------
    root_rank : int
        A global rank.
    device : str
        Where TensorFlow puts the operations; "" leaves it to TensorFlow.

    Examples
    --------
    ::

        hooks = [hvd.BroadcastGlobalVariablesHook(0)]
        with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            ...
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        self.root_rank = root_rank
        self.device = device
        self.bcast_op: Any = None

    def begin(self) -> None:
        """Add the operation to the graph, before it is finalized."""
        graph = tf.compat.v1.get_default_graph()
        if self.bcast_op is None or self.bcast_op.graph is not graph:
            with tf.device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Run it, once the variables are initialized or restored.

        Parameters
        ----------
        session : tf.compat.v1.Session
            The new session.
        coord : tf.train.Coordinator
            Of its threads; not used.
        """
        session.run(self.bcast_op)
