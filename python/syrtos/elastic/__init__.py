"""Training that survives failures: state that is committed, restored and synchronised.

::

    import syrtos
    from syrtos import elastic

    @elastic.run
    def train(state):
        while state.step < 1000:
            ...
            state.step += 1
            state.commit()

    syrtos.init()
    train(elastic.ObjectState(step=0))

If a collective fails because a rank was lost, all ranks go back to the last commit and start again
with a new engine. In this version the launcher never adds, replaces or removes ranks: all ranks of
the job must come back.

The front ends have an ``elastic`` of their own with states that know their models. The names are
Horovod's, and so are the signatures.
"""

from __future__ import annotations

from syrtos.elastic.loop import run, run_fn
from syrtos.elastic.notifications import (
    HostsUpdatedInterrupt,
    HostUpdateResult,
    WorkerNotificationManager,
    notification_manager,
)
from syrtos.elastic.state import ObjectState, State

__all__ = [
    "HostUpdateResult",
    "HostsUpdatedInterrupt",
    "ObjectState",
    "State",
    "WorkerNotificationManager",
    "notification_manager",
    "run",
    "run_fn",
]
