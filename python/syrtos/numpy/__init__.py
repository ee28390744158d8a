"""Collectives for NumPy arrays, with the signatures of ``horovod.torch``.

Examples
--------
>>> import numpy as np
>>> import syrtos.numpy as st
>>> st.init()
>>> st.allreduce(np.arange(3.0) * (st.rank() + 1))
array([0., 1., 2.])
"""

from __future__ import annotations

from syrtos import _basics, errors
from syrtos._basics import *  # noqa: F403
from syrtos.compression import Compression
from syrtos.errors import HorovodInternalError
from syrtos.numpy import functions, gathers, reductions, scatters
from syrtos.numpy.functions import *  # noqa: F403
from syrtos.numpy.gathers import *  # noqa: F403
from syrtos.numpy.reductions import *  # noqa: F403
from syrtos.numpy.scatters import *  # noqa: F403

__all__ = ["Compression", "HorovodInternalError", "errors"]
__all__ += _basics.__all__
__all__ += functions.__all__
__all__ += gathers.__all__
__all__ += reductions.__all__
__all__ += scatters.__all__
