"""A script written for Horovod; it runs on Syrtos as it is.

pip install syrtos-horovod
horovodrun -np 2 python examples/torch_horovod_style.py --epochs 10
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import horovod.torch as hvd

parser = argparse.ArgumentParser(description="Digits with horovod.torch")
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--fp16-allreduce", action="store_true")
args = parser.parse_args()


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 16, 3, padding=1)
        self.fc1 = torch.nn.Linear(256, 64)
        self.fc2 = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return F.log_softmax(self.fc2(x), dim=1)


hvd.init()
torch.manual_seed(42)
torch.set_num_threads(1)

data = load_digits()
images = torch.tensor(data.images / 16.0, dtype=torch.float32).unsqueeze(1)
labels = torch.tensor(data.target)
train_set = TensorDataset(images[:1440], labels[:1440])
test_set = TensorDataset(images[1440:], labels[1440:])
train_sampler = DistributedSampler(train_set, num_replicas=hvd.size(), rank=hvd.rank())
train_loader = DataLoader(train_set, batch_size=args.batch_size, sampler=train_sampler)
test_sampler = DistributedSampler(test_set, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False)
test_loader = DataLoader(test_set, batch_size=100, sampler=test_sampler)

model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=args.momentum)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(
    optimizer,
    named_parameters=model.named_parameters(),
    compression=hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none,
    op=hvd.Average,
)

for epoch in range(1, args.epochs + 1):
    model.train()
    train_sampler.set_epoch(epoch)
    for image, target in train_loader:
        optimizer.zero_grad()
        loss = F.nll_loss(model(image), target)
        loss.backward()
        optimizer.step()
    if hvd.rank() == 0:
        print(f"epoch {epoch}: loss {loss.item():.3f}")

model.eval()
correct = 0.0
for image, target in test_loader:
    with torch.no_grad():
        correct += model(image).argmax(1).eq(target).float().mean().item() / len(test_loader)
accuracy = hvd.allreduce(torch.tensor(correct), name="avg_accuracy").item()
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
all_weights = hvd.allgather(weights.unsqueeze(0))
identical = bool((all_weights == weights).all())

if hvd.rank() == 0:
    print(f"test accuracy: {accuracy:.1%}")
    print(f"weights identical on all ranks: {'yes' if identical else 'NO'}")
