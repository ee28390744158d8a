"""The arguments of `DistributedOptimizer` and `wrap`: what they may be, and who is called what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from syrtos import _session, process_sets
from syrtos._kinds import ReduceOp
from syrtos.errors import InvalidRequestError
from syrtos.process_sets import ProcessSet, global_process_set
from syrtos.torch.compression import Compression

__all__ = [
    "Settings",
    "check_passes",
    "group_parameters",
    "name_new_group",
    "name_parameters",
    "shape_of",
]


@dataclass(frozen=True, eq=False)
class Settings:
    """How gradients are reduced.

    Parameters
    ----------
    op : ReduceOp
        Average, Sum or Adasum.
    compression : type
        What travels in place of a dense gradient.
    gradient_predivide_factor : float
        Divide by it before the sum, and by the rest of the number of ranks after it; needs Average.
    sparse_as_dense : bool
        Make sparse gradients dense before.
    keep_sparse : bool
        Make them sparse again afterwards.
    process_set : ProcessSet
        The ranks that take part.
    """

    op: ReduceOp = ReduceOp.Average
    compression: Any = Compression.none
    gradient_predivide_factor: float = 1.0
    sparse_as_dense: bool = False
    keep_sparse: bool = False
    process_set: ProcessSet = global_process_set

    def __post_init__(self) -> None:
        if self.op not in (ReduceOp.Average, ReduceOp.Sum, ReduceOp.Adasum):
            raise InvalidRequestError(
                f"op={self.op!r}: gradients are reduced with Average, Sum or Adasum only."
            )
        object.__setattr__(self, "op", ReduceOp(self.op))
        factor = self.gradient_predivide_factor
        if factor != 1.0 and self.op != ReduceOp.Average:
            raise InvalidRequestError(
                f"gradient_predivide_factor={factor} splits the division of an average, so it "
                f"needs op=Average, not {self.op.name}."
            )
        if not factor > 0:
            raise InvalidRequestError(f"gradient_predivide_factor={factor}: give more than 0.")
        if not isinstance(self.process_set, ProcessSet):
            raise TypeError(
                f"process_set={self.process_set!r}: give a ProcessSet, see add_process_set."
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> Settings:
        # Immutable, and its process set must stay the registered object.
        return self

    def __getstate__(self) -> dict[str, Any]:
        world = self.process_set is global_process_set
        return {**vars(self), "process_set": None if world else list(self.process_set.ranks or ())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for key, value in state.items():
            object.__setattr__(self, key, value)
        object.__setattr__(self, "process_set", _process_set_of(state["process_set"]))


def _process_set_of(ranks: list[int] | None) -> ProcessSet:
    """Return the set of these ranks; None for all ranks."""
    if ranks is None:
        return global_process_set
    found = ProcessSet(ranks)
    if _session.is_started():
        numbers = {tuple(members): n for n, members in process_sets.registered().items()}
        found.process_set_id = numbers.get(tuple(found.ranks or ()))
    return found


def check_passes(passes: Any) -> int:
    """Return a valid number of backward passes.

    Raises
    ------
    InvalidRequestError
        It is no whole number, or less than 1; also a ``ValueError``.
    """
    if not isinstance(passes, int) or isinstance(passes, bool) or passes < 1:
        raise InvalidRequestError(
            f"backward_passes_per_step={passes!r}: give a whole number, 1 or more."
        )
    return passes


def shape_of(parameter: Any) -> str:
    """Return what tells a parameter from others in a message."""
    return f"shape {tuple(parameter.shape)}"


def _check_pairs(pairs: list[Any]) -> None:
    for pair in pairs:
        if not (
            isinstance(pair, tuple)
            and len(pair) == 2
            and isinstance(pair[0], str)
            and isinstance(pair[1], torch.Tensor)
        ):
            raise InvalidRequestError(
                "named_parameters must hold pairs of a name and a parameter, as "
                f"model.named_parameters() gives them; there is a {type(pair).__name__} in it."
            )
    counts = Counter(name for name, _ in pairs)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise InvalidRequestError(
            f"named_parameters: each name must belong to one parameter, but {', '.join(twice)} "
            'came twice. Of several models, give each a prefix: ("generator." + name, parameter).'
        )


def name_parameters(
    groups: Sequence[dict[str, Any]], named_parameters: Iterable[tuple[str, Any]] | None
) -> list[tuple[str, Any]]:
    """Return the parameters of an optimizer with their names, in an order that all ranks share.

    Parameters
    ----------
    groups : sequence of dict
        The optimizer's parameter groups.
    named_parameters : iterable of (str, torch.Tensor), optional
        The names; there may be more parameters than the optimizer has. Without it, the names that
        the optimizer was created with, or their places in the groups.

    Raises
    ------
    InvalidRequestError
        Not all parameters have a name, or two have the same; also a ``ValueError``.
    """
    if named_parameters is None:
        return _names_of_groups(groups)
    pairs = list(named_parameters)
    _check_pairs(pairs)
    places = {
        id(parameter): f"number {j} of group {i} ({shape_of(parameter)})"
        for i, group in enumerate(groups)
        for j, parameter in enumerate(group["params"])
    }
    named = []
    for name, parameter in pairs:
        # A second name of the same parameter is left out.
        if places.pop(id(parameter), None) is not None:
            named.append((name, parameter))
    if places:
        raise InvalidRequestError(
            f"named_parameters has no name for {len(places)} parameters of the optimizer: "
            f"{', '.join(places.values())}. Give the names of all, as model.named_parameters() "
            "does, or leave the argument out."
        )
    return named


def _names_of_groups(groups: Sequence[dict[str, Any]]) -> list[tuple[str, Any]]:
    own = [name for group in groups for name in group.get("param_names", ())]
    parameters = [parameter for group in groups for parameter in group["params"]]
    if len(set(own)) == len(parameters):
        return list(zip(own, parameters, strict=True))
    return [pair for i, group in enumerate(groups) for pair in _by_place(i, group)]


def _by_place(number: int, group: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(f"noname.{number}.{j}", parameter) for j, parameter in enumerate(group["params"])]


def name_new_group(groups: Sequence[dict[str, Any]], taken: set[str]) -> list[tuple[str, Any]]:
    """Return names for the last group, which was added later.

    Parameters
    ----------
    groups : sequence of dict
        All groups.
    taken : set of str
        The names of the parameters before.
    """
    group = groups[-1]
    own = group.get("param_names", ())
    if own and not taken.intersection(own):
        return list(zip(own, group["params"], strict=True))
    return _by_place(len(groups) - 1, group)


def group_parameters(parameters: Sequence[Any], groups: Any, num_groups: int) -> list[list[int]]:
    """Return which parameters travel in one request, by their positions; each is in one.

    Parameters
    ----------
    parameters : sequence of torch.Tensor
        All parameters.
    groups : int or list of lists of torch.Tensor, optional
        So many requests, or the parameters of each; the others travel alone.
    num_groups : int
        Horovod's older name.

    Raises
    ------
    InvalidRequestError
        Neither of these; also a ``ValueError``.
    """
    for name, value in (("num_groups", num_groups), ("groups", groups)):
        if isinstance(value, bool) or (isinstance(value, int) and value < 0):
            raise InvalidRequestError(f"{name}={value!r}: give a whole number, 0 or more.")
    if not isinstance(num_groups, int):
        raise InvalidRequestError(f"num_groups={num_groups!r}: give a whole number, 0 or more.")
    groups = num_groups if groups is None else groups
    if isinstance(groups, int):
        trained = [i for i, p in enumerate(parameters) if p.requires_grad]
        wanted = _split(trained, groups)
    else:
        wanted = _positions(parameters, groups)
    grouped = {i for members in wanted for i in members}
    return [*wanted, *([i] for i in range(len(parameters)) if i not in grouped)]


def _split(items: list[int], count: int) -> list[list[int]]:
    """Split into `count` lists of nearly equal length."""
    count = min(count, len(items))
    if not count:
        return []
    base, more = divmod(len(items), count)
    ends = [base * (i + 1) + min(i + 1, more) for i in range(count)]
    return [items[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _positions(parameters: Sequence[Any], groups: Any) -> list[list[int]]:
    if not isinstance(groups, list | tuple) or not all(
        isinstance(group, list | tuple) for group in groups
    ):
        raise InvalidRequestError(
            f"groups={groups!r}: give a whole number, or a list of lists of parameters."
        )
    position = {id(parameter): i for i, parameter in enumerate(parameters)}
    seen: set[int] = set()
    for group in groups:
        for parameter in group:
            if not isinstance(parameter, torch.Tensor):
                raise InvalidRequestError(
                    f"groups: there is a {type(parameter).__name__} in a list; give parameters."
                )
            if id(parameter) in seen:
                raise InvalidRequestError(
                    f"groups: the parameter of {shape_of(parameter)} is listed twice."
                )
            seen.add(id(parameter))
    lists = [[position[id(p)] for p in group if id(p) in position] for group in groups]
    return [members for members in lists if members]
