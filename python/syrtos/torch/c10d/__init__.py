"""Syrtos as a backend of ``torch.distributed``, for scripts that use DDP and the like.

::

    import torch.distributed as dist
    import syrtos.torch.c10d  # registers the backend

    dist.init_process_group("cpu:syrtos")

Start it by ``syrtosrun``, or by anything that torch knows: ``torchrun``, or arguments of
``init_process_group``. There is no need for `syrtos.init`, and nothing speaks against it: every
process group has an engine of its own, which `destroy_process_group` ends.

Notes
-----
Works with CPU tensors. There is no ``send`` and ``recv``: make a group with
``dist.new_group(backend="gloo")`` for them. The ranks of a group are all on one machine today.
"""

from __future__ import annotations

import torch.distributed as dist

from syrtos.torch.c10d import rendezvous
from syrtos.torch.c10d.group import SyrtosProcessGroup
from syrtos.torch.c10d.start import create

__all__ = ["SyrtosProcessGroup"]

rendezvous.register()
dist.Backend.register_backend("syrtos", create, extended_api=True, devices=["cpu"])
