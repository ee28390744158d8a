"""Syrtos for JAX 0.5 and newer: collectives at once and inside ``jax.jit``, on arrays and trees.

::

    import syrtos.jax as hvd

    hvd.init()
    params = hvd.broadcast_parameters(params, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optax.adam(1e-3))  # or, without optax:
    loss, grads = hvd.value_and_grad(loss_function)(params, batch)

Inside `jax.jit`
    Collectives work under ``jit``, ``grad``, ``vmap``, ``checkpoint``, ``lax.scan``,
    ``lax.while_loop`` and ``lax.cond``. A program never holds a thread of XLA while it waits for
    other ranks. Shapes are fixed before a program runs, so all ranks must have equally many rows.

Order
    The collectives of a program run in the order of its text, and programs in the order in which a
    thread starts them. Inside programs this order alone pairs the collectives of the ranks, so each
    rank must come to them in the same order; where names or shapes differ, all ranks get an error.
    Start programs that contain collectives from one thread: two would have no common order.

Errors
    At once: the classes of `syrtos.errors`. In a program: ``jax.errors.JaxRuntimeError`` with the
    same text, raised where the results are used. Afterwards the next program works.
"""

from __future__ import annotations

from syrtos import _basics, errors
from syrtos._basics import *  # noqa: F403
from syrtos.compression import Compression
from syrtos.errors import HorovodInternalError
from syrtos.jax import batch_stats, functions, handles, movements, optimizer, reductions
from syrtos.jax.batch_stats import *  # noqa: F403
from syrtos.jax.functions import *  # noqa: F403
from syrtos.jax.handles import *  # noqa: F403
from syrtos.jax.movements import *  # noqa: F403
from syrtos.jax.optimizer import *  # noqa: F403
from syrtos.jax.reductions import *  # noqa: F403

__all__ = ["Compression", "HorovodInternalError", "errors"]
__all__ += [name for name in _basics.__all__ if name not in functions.__all__]
__all__ += batch_stats.__all__
__all__ += functions.__all__
__all__ += handles.__all__
__all__ += movements.__all__
__all__ += optimizer.__all__
__all__ += reductions.__all__
