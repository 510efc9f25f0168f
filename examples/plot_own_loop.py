"""Add the penalty to a training loop
==================================

In a plain PyTorch loop, two extra lines make the network's reasons depend less on the group. This page runs
the loop without and with the penalty.
"""

# %%
# Any tensors will do. Here the COMPAS table is encoded into numbers, and race into 0 and 1.

import torch
from matplotlib import pyplot as plt
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import gcig
from gcig.data.encoding import TableEncoder

data = gcig.load_dataset("compas", include_sensitive=False)
x = torch.from_numpy(TableEncoder().fit(data.X).transform(data.X))
y = torch.tensor(data.y.to_numpy())
groups = torch.tensor((data.sensitive_features == "African-American").to_numpy().astype("int64"))

# %%
# ``GroupBaselines`` holds the reference of each label and group, and follows the mini-batches.
# ``GCIGPenalty`` is a differentiable number per mini-batch: add it to the loss with a weight of your
# choice. The network only has to map rows to one logit each.

curves = {}
for weight in (0.0, 0.5):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(x.shape[1], 32), nn.SiLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    baselines = gcig.GroupBaselines.from_data(x, y, groups)
    penalty = gcig.GCIGPenalty(baselines)
    values = []
    for _ in range(8):
        for batch in torch.randperm(len(x)).split(256):
            baselines.update(x[batch], y[batch], groups[batch])
            loss = binary_cross_entropy_with_logits(network(x[batch]).flatten(), y[batch].float())
            disparity = penalty(network, x[batch], y[batch])
            optimizer.zero_grad()
            (loss + weight * disparity).backward()
            optimizer.step()
        values.append(
            gcig.metrics.gcig_score(network, x.numpy(), y, sensitive_features=data.sensitive_features)
        )
    curves[weight] = values
    print(f"weight {weight}: GCIG {values[-1]:.3f} on the training rows")

# %%
# GCIG on the training rows after each epoch:

figure, axes = plt.subplots(layout="constrained")
for (weight, values), line in zip(curves.items(), ("--", "-"), strict=True):
    axes.plot(range(1, len(values) + 1), values, line, label=f"weight {weight}")
axes.set(xlabel="epoch", ylabel="GCIG on the training rows")
axes.set_ylim(bottom=0)
_ = axes.legend()
