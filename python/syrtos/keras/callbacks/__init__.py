"""Callbacks for ``model.fit``, with Horovod's names.

Give `BroadcastGlobalVariablesCallback` and `MetricAverageCallback` to all ranks alike. Their place
in the list does not matter, except that the former comes after one that restores a checkpoint.
"""

from __future__ import annotations

from syrtos.keras.callbacks.best_model import BestModelCheckpoint
from syrtos.keras.callbacks.broadcast import BroadcastGlobalVariablesCallback
from syrtos.keras.callbacks.learning_rate import (
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
)
from syrtos.keras.callbacks.metric_average import MetricAverageCallback
from syrtos.keras.callbacks.state import (
    CommitStateCallback,
    UpdateBatchStateCallback,
    UpdateEpochStateCallback,
)

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "CommitStateCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
]
