"""Syrtos for PyTorch 2.4 and newer: the names and signatures of ``horovod.torch``.

::

    import syrtos.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

Where Horovod has a parameter, it is here under the same name, at the same place, with the same
default; some functions have more behind.
"""

from __future__ import annotations

from syrtos import _basics, errors
from syrtos._basics import *  # noqa: F403
from syrtos.errors import HorovodInternalError
from syrtos.torch import elastic, functions, gathers, reductions, scatters
from syrtos.torch.compression import Compression
from syrtos.torch.functions import *  # noqa: F403
from syrtos.torch.gathers import *  # noqa: F403
from syrtos.torch.optimizer import DistributedOptimizer
from syrtos.torch.reductions import *  # noqa: F403
from syrtos.torch.scatters import *  # noqa: F403
from syrtos.torch.sparse import sparse_allreduce_async
from syrtos.torch.sync_batch_norm import SyncBatchNorm
from syrtos.torch.wrap import wrap

__all__ = [
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "SyncBatchNorm",
    "elastic",
    "errors",
    "sparse_allreduce_async",
    "wrap",
]
__all__ += _basics.__all__
__all__ += functions.__all__
__all__ += gathers.__all__
__all__ += reductions.__all__
__all__ += scatters.__all__
