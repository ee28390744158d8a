"""The collectives of `horovod.torch` under the name of the module that has them in Horovod."""

from __future__ import annotations

from horovod.common.basics import HorovodBasics as _HorovodBasics
from horovod.common.exceptions import HorovodInternalError as HorovodInternalError
from horovod.common.util import get_average_backwards_compatibility_fun, num_rank_is_power_2
from syrtos.torch import *  # noqa: F403

_basics = _HorovodBasics()

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)
check_num_rank_power_of_2 = num_rank_is_power_2
