"""Trains a small convolutional network on handwritten digits, on all ranks together.

    syrtosrun -np 2 python examples/torch_digits.py

The images (8 x 8 pixels) come with scikit-learn. Lines marked (1) to (6) make it distributed.
"""

import hashlib

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import syrtos.torch as hvd

EPOCHS = 12
BATCH = 32  # images of each rank in one step


def load_images():
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return train_test_split(
        images, torch.tensor(labels), test_size=0.2, random_state=0, stratify=labels
    )


def make_model():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(576, 10),
    )


def train_epoch(model, optimizer, x, y):
    """Train on all images once; the mean loss of this rank."""
    model.train()
    losses = []
    for batch in torch.randperm(len(x)).split(BATCH):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).mean()


def main():
    hvd.init()  # (1) meet the other ranks
    rank, size = hvd.rank(), hvd.size()
    torch.manual_seed(rank)
    x, x_test, y, y_test = load_images()

    # (2) each rank takes its share of the images, equally many so that they take equally many steps
    mine = slice(rank, len(x) // size * size, size)

    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001 * size)
    # (3) gradients are averaged over the ranks; the rate grows with the batch
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)  # (4) begin with equal weights

    for epoch in range(1, EPOCHS + 1):
        loss = train_epoch(model, optimizer, x[mine], y[mine])
        loss = hvd.allreduce(loss)  # (5) the mean over the ranks
        if rank == 0:  # (6) one report is enough
            print(f"epoch {epoch:2}: loss {loss:.3f}", flush=True)

    model.eval()
    with torch.no_grad():
        right = model(x_test[rank::size]).argmax(1) == y_test[rank::size]
    accuracy = hvd.allreduce(right.sum(), op=hvd.Sum).item() / len(x_test)
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    identical = len(set(hvd.allgather_object(hashlib.sha256(weights).digest()))) == 1
    if rank == 0:
        print(
            f"test accuracy: {accuracy:.1%}\n"
            f"weights identical on all ranks: {'yes' if identical else 'NO'}",
            flush=True,
        )
    hvd.shutdown()


if __name__ == "__main__":
    main()
