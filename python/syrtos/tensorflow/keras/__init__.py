"""The names of `syrtos.keras`, where Horovod's users look for them."""

import sys

from syrtos import keras as _keras
from syrtos.keras import *  # noqa: F403
from syrtos.keras import callbacks, elastic

__all__ = list(_keras.__all__)

# `import syrtos.tensorflow.keras.callbacks` gives the same module.
sys.modules[__name__ + ".callbacks"] = callbacks
sys.modules[__name__ + ".elastic"] = elastic
