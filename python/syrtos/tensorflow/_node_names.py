"""The names of requests and of their nodes in graphs; see `syrtos.tensorflow.ops`."""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf

__all__ = ["names_of"]

# What TensorFlow allows, and what its function graphs end with: a number that counts all of them.
_NOT_IN_NODE_NAMES = re.compile(r"[^A-Za-z0-9_.\\/-]|^[^A-Za-z0-9.]")
_FUNCTION_COUNTER = re.compile(r"_\d+$")


def _automatic_name(graph: Any, node: str) -> str:
    """Return the request name of a node whose op got none: see above."""
    if not graph.building_function:
        return node
    if tf.compat.v1.executing_eagerly_outside_functions():
        return ""
    # A branch or loop body within a graph of tf.compat.v1.
    while graph is not None and graph.building_function:
        node = f"{_FUNCTION_COUNTER.sub('', graph.name)}/{node}"
        graph = graph.outer_graph
    return node


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def names_of(
    prefix: str, what: str, name: str | None, ignore_name_scope: bool, like: Any
) -> dict[str, str]:
    """Return the names of a request ("" for an unnamed one) and of its node.

    Parameters
    ----------
    prefix : str
        The word with which names of nodes begin.
    what : str
        The collective.
    name : str or None
        That the user gave.
    ignore_name_scope : bool
        In a graph, take the last component of the name only.
    like : tf.Tensor or None
        After which a node without a name is called.

    Returns
    -------
    dict
        Arguments of the op: ``op_name``, and in a graph ``name``.
    """
    if tf.executing_eagerly():
        return {"op_name": name or ""}
    graph = tf.compat.v1.get_default_graph()
    # An eager tensor that a function has caught has no name.
    base = name or f"{prefix}{what.capitalize()}_{_plain(getattr(like, 'name', 'constant'))}"
    unique = str(graph.unique_name(base, mark_as_used=False))
    request = unique if name else _automatic_name(graph, unique)
    if ignore_name_scope:
        request = (name or request).rpartition("/")[2]
    return {"op_name": request, "name": _NOT_IN_NODE_NAMES.sub("_", base)}
