"""Batch normalization over the batches of all ranks, and a wrapped model in place of an optimizer.

    syrtosrun -np 2 python examples/torch_sync_batch_norm.py

With only eight images on each rank, statistics of one rank alone would be poor. The model is
wrapped as people do who come from DistributedDataParallel; the optimizer is then a plain one.
"""

import hashlib

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import syrtos.torch as hvd

EPOCHS = 5
BATCH = 8  # images of each rank in one step


def load_images():
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return train_test_split(
        images, torch.tensor(labels), test_size=0.2, random_state=0, stratify=labels
    )


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, bias=False),
        hvd.SyncBatchNorm(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, bias=False),
        hvd.SyncBatchNorm(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(576, 10),
    )


def main():
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    torch.manual_seed(rank)
    x, x_test, y, y_test = load_images()
    each = len(x) // (size * BATCH) * BATCH  # whole batches, equally many on each rank
    x, y = x[rank::size][:each], y[rank::size][:each]

    # All ranks take over the weights of the first; the statistics are the same on all anyway.
    model = hvd.wrap(make_model(), broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    for epoch in range(1, EPOCHS + 1):
        model.train()
        for batch in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            loss.backward()  # gradients are averaged when this returns
            optimizer.step()
        loss = hvd.allreduce(loss.detach())
        if rank == 0:
            print(f"epoch {epoch}: loss of the last batch {loss:.3f}", flush=True)

    model.eval()
    with torch.no_grad():
        right = model(x_test[rank::size]).argmax(1) == y_test[rank::size]
    accuracy = hvd.allreduce(right.sum(), op=hvd.Sum).item() / len(x_test)
    state = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
    identical = len(set(hvd.allgather_object(hashlib.sha256(state).digest()))) == 1
    if rank == 0:
        print(
            f"test accuracy: {accuracy:.1%}\n"
            f"weights identical on all ranks: {'yes' if identical else 'NO'}",
            flush=True,
        )
    hvd.shutdown()


if __name__ == "__main__":
    main()
