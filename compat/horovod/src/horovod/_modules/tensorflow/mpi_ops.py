"""The collectives of `horovod.tensorflow` under the name of the module that has them in Horovod."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from horovod.common.basics import HorovodBasics as _HorovodBasics
from horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from horovod.common.util import get_average_backwards_compatibility_fun, num_rank_is_power_2
from syrtos.tensorflow import *  # noqa: F403
from syrtos.tensorflow import Sum, global_process_set, ops, reductions

_basics = _HorovodBasics()

# Scripts look for nodes of graphs whose type and name begin with "Horovod".
ops.use_prefix("Horovod")

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)
check_num_rank_power_of_2 = num_rank_is_power_2


def _normalize_name(name: str) -> str:
    """Return a tensor's name as a part of a node's name."""
    return re.sub("[^a-zA-Z0-9_]", "_", name)


def _allreduce(tensor: Any, name: str | None = None, op: Any = Sum, **options: Any) -> Any:
    """Reduce a tensor over all ranks, by default to the sum."""
    return reductions.allreduce(tensor, name=name, op=op, **options)


def _grouped_allreduce(
    tensors: Sequence[Any], name: str | None = None, op: Any = Sum, **options: Any
) -> list[Any]:
    """Reduce several tensors over all ranks, by default to the sums."""
    return reductions.grouped_allreduce(tensors, name=name, op=op, **options)


def _reducescatter(tensor: Any, name: str | None = None, op: Any = Sum, **options: Any) -> Any:
    """Reduce a tensor and leave each rank its share of the rows, by default of the sum."""
    return reductions.reducescatter(tensor, name=name, op=op, **options)


def _grouped_reducescatter(
    tensors: Sequence[Any],
    name: str | None = None,
    op: Any = Sum,
    process_set: Any = global_process_set,
    **options: Any,
) -> list[Any]:
    """Reduce several tensors and leave each rank its shares, by default of the sums."""
    del name  # of several nodes in Horovod
    return reductions.grouped_reducescatter(tensors, op=op, process_set=process_set, **options)
