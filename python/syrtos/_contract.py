"""Names that the launcher and the ranks agree on; nothing else.

The launcher sets these environment variables for every rank. ``HOROVOD_*`` twins of the first six
are set too, for scripts that read them.
"""

from __future__ import annotations

RANK = "SYRTOS_RANK"
SIZE = "SYRTOS_SIZE"
LOCAL_RANK = "SYRTOS_LOCAL_RANK"
LOCAL_SIZE = "SYRTOS_LOCAL_SIZE"
CROSS_RANK = "SYRTOS_CROSS_RANK"
CROSS_SIZE = "SYRTOS_CROSS_SIZE"
#: ``host:port`` of the rendezvous store.
STORE = "SYRTOS_STORE"
#: Prefix of all keys in the store.
JOB_ID = "SYRTOS_JOB_ID"
#: Name of this rank's host, as shown in messages.
HOST = "SYRTOS_HOST"
#: Address on which this rank's listeners bind and are advertised.
ADDRESS = "SYRTOS_ADDRESS"

TOPOLOGY = (RANK, SIZE, LOCAL_RANK, LOCAL_SIZE, CROSS_RANK, CROSS_SIZE)
