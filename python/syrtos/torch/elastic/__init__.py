"""Elastic training with PyTorch, with Horovod's names.

::

    import syrtos.torch as hvd

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, 10):
            for index, batch in enumerate(loader):  # its sampler is state.sampler
                ...
                state.sampler.record_batch(index, batch_size)
                state.commit()
            state.sampler.set_epoch(state.epoch + 1)

    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0)
    train(state)

`syrtos.elastic` says what happens on a failure, and what this version does not do.
"""

from __future__ import annotations

from syrtos.elastic import run
from syrtos.torch.elastic.sampler import ElasticSampler
from syrtos.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "TorchState", "run"]
