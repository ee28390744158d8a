"""Mixed precision, a gradient scaler, clipping, and gradients added up over several batches.

    syrtosrun -np 2 python examples/torch_amp_accumulation.py

Nothing but the lines of any distributed script is needed: gradients are averaged once for every
ACCUMULATE batches, before the scaler looks at them, so all ranks skip a step or none does.
"""

import hashlib

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import syrtos.torch as hvd

EPOCHS = 25
BATCH = 16  # images of each rank in one backward pass
ACCUMULATE = 2  # backward passes for each step


def load_images():
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16.0, dtype=torch.float32)
    return train_test_split(
        images, torch.tensor(labels), test_size=0.2, random_state=0, stratify=labels
    )


def train_epoch(model, optimizer, scaler, x, y):
    batches = torch.randperm(len(x)).split(BATCH)
    batches = batches[: len(batches) // ACCUMULATE * ACCUMULATE]
    for i, batch in enumerate(batches, 1):
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch]) / ACCUMULATE
        scaler.scale(loss).backward()
        if i % ACCUMULATE == 0:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()


def main():
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    torch.manual_seed(rank)
    x, x_test, y, y_test = load_images()
    mine = slice(rank, len(x) // size * size, size)

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001 * size)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    optimizer = hvd.DistributedOptimizer(
        optimizer, model.named_parameters(), backward_passes_per_step=ACCUMULATE
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    # float16 needs the scaler; bfloat16 does without, and shows here that both go together.
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=100)
    for _ in range(EPOCHS):
        train_epoch(model, optimizer, scaler, x[mine], y[mine])
        scheduler.step()

    with torch.no_grad():
        right = model(x_test[rank::size]).argmax(1) == y_test[rank::size]
    accuracy = hvd.allreduce(right.sum(), op=hvd.Sum).item() / len(x_test)
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    identical = len(set(hvd.allgather_object(hashlib.sha256(weights).digest()))) == 1
    scales = hvd.allgather_object(scaler.get_scale())
    if rank == 0:
        print(
            f"scales of the ranks: {', '.join(f'{scale:g}' for scale in scales)}\n"
            f"test accuracy: {accuracy:.1%}\n"
            f"weights identical on all ranks: {'yes' if identical else 'NO'}",
            flush=True,
        )
    hvd.shutdown()


if __name__ == "__main__":
    main()
