"""Making models and optimizers alike on all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import torch

from syrtos import _session
from syrtos._handle import Handle
from syrtos._kinds import Kind
from syrtos._objects import broadcast_object
from syrtos._ops import root_number
from syrtos._requests import group_of
from syrtos.adapter import part_of
from syrtos.errors import InvalidRequestError
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.torch.adapter import ADAPTER

__all__ = ["broadcast_parameters", "broadcast_tensors"]


def broadcast_tensors(
    pairs: Sequence[tuple[str, Any]], root_rank: int, process_set: ProcessSet
) -> None:
    """Overwrite tensors with the root's, as one request whose parts have names.

    Parameters
    ----------
    pairs : sequence of (name, tensor)
        Alike, and in the same order, on every rank.
    root_rank : int
        Global rank of the sender.
    process_set : ProcessSet
        The ranks that take part.

    Raises
    ------
    MismatchError
        Ranks disagree about a tensor, which the text names, or about how many there are.
    """
    session = _session.current()
    # A request has tensors: an empty one tells a rank that has some that here are none.
    pairs = pairs or [("nothing", torch.empty(0))]
    with torch.no_grad():
        views = [
            ADAPTER.view(tensor, in_place=True, what=f'broadcast of "{name}"')
            for name, tensor in pairs
        ]
        parts = [
            part_of(view, view.pointer, name=name)
            for view, (name, _) in zip(views, pairs, strict=True)
        ]
        completion = session.submit(
            Kind.BROADCAST, parts, group=group_of(process_set), root=root_rank
        )
        Handle(
            session, completion, views, lambda _: [ADAPTER.write_back(view) for view in views]
        ).wait()


def _named(params: Any) -> list[tuple[str, Any]]:
    """Return the entries with their names, in an order that all ranks share."""
    if isinstance(params, Mapping):
        return sorted(params.items())
    if isinstance(params, torch.Tensor | str) or not isinstance(params, Iterable):
        raise InvalidRequestError(
            "broadcast_parameters takes a dict, or a list of (name, tensor), not "
            f"{type(params).__name__}: give model.state_dict() or model.named_parameters()."
        )
    pairs = list(params)
    return [
        pair if isinstance(pair, tuple) else (f"parameter {number}", pair)
        for number, pair in enumerate(pairs)
    ]


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Overwrite named tensors with the root's, so that all ranks start alike.

    Parameters
    ----------
    params : mapping, or iterable of (name, tensor) or of tensors
        ``model.state_dict()``, ``model.named_parameters()`` or ``model.parameters()``: the same
        names, shapes and dtypes on every rank; tensors of any dtype, contiguous or not. What is no
        tensor in a dict (a module's extra state) is replaced by the root's object.
    root_rank : int
        Global rank of the sender.
    process_set : ProcessSet
        The ranks that take part.

    Raises
    ------
    MismatchError
        Ranks disagree about a tensor, which the text names, or about how many there are.
    InvalidRequestError
        `params` is something else; also a ``ValueError``.
    TypeError
        Something in a list is no tensor.

    Examples
    --------
    >>> import torch
    >>> import syrtos.torch as hvd
    >>> hvd.init()
    >>> hvd.broadcast_parameters(torch.nn.Linear(2, 2).state_dict(), root_rank=0)
    """
    pairs = _named(params)
    root = root_number(root_rank)
    objects = {}
    if isinstance(params, MutableMapping):
        objects = {name: value for name, value in pairs if not isinstance(value, torch.Tensor)}
    # An object leaves an empty tensor in its place, so that a rank without it is told so.
    broadcast_tensors(
        [(name, torch.empty(0) if name in objects else value) for name, value in pairs],
        root,
        process_set,
    )
    if objects:
        params.update(  # type: ignore[union-attr]
            broadcast_object(objects, root, process_set=process_set)
        )
