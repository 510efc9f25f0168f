"""Add a penalty to a training loop
================================

In a plain PyTorch loop, two extra lines make the network's reasons depend less on the group. This page runs
the loop without a penalty, with the paper's, and with the one to recommend.
"""

# %%
# Any tensors will do. Here the COMPAS table is encoded into numbers, and race into 0 and 1.

import torch
from matplotlib import pyplot as plt
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import gcig
from gcig.tables.encoding import TableEncoder

data = gcig.load_dataset("compas", include_sensitive=False)
x = torch.from_numpy(TableEncoder().fit(data.X).transform(data.X))
y = torch.tensor(data.y.to_numpy())
groups = torch.tensor((data.sensitive_features == "African-American").to_numpy().astype("int64"))

# %%
# ``GroupBaselines`` holds the references of each label and group. A penalty is a differentiable number per
# mini-batch: add it to the loss with a weight of your choice. ``GCIGPenalty`` is the paper's formula, which
# larger explanations that cancel lower as well. They do not lower ``ReasonGapPenalty``: it measures in units
# of the spread of the scores, which is fixed. About one is usual for a logit.

baselines = gcig.GroupBaselines.from_data(x, y, groups)
penalties = {
    "no penalty": lambda *_: 0.0,
    "GCIGPenalty": gcig.GCIGPenalty(baselines, random_state=0),
    "ReasonGapPenalty": gcig.ReasonGapPenalty(baselines, scale=1.0, rows=32, random_state=0),
}
curves = {}
for name, penalty in penalties.items():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(x.shape[1], 32), nn.SiLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    values = []
    for _ in range(8):
        for batch in torch.randperm(len(x)).split(256):
            loss = binary_cross_entropy_with_logits(network(x[batch]).flatten(), y[batch].float())
            optimizer.zero_grad()
            (loss + 0.1 * penalty(network, x[batch], y[batch])).backward()
            optimizer.step()
        values.append(
            gcig.metrics.gcig_score(network, x.numpy(), y, sensitive_features=data.sensitive_features)
        )
    curves[name] = values
    print(f"{name}: GCIG {values[-1]:.3f} on the training rows, cross-entropy {float(loss.detach()):.3f}")

# %%
# GCIG on the training rows after each epoch:

figure, axes = plt.subplots(layout="constrained")
for (name, values), line in zip(curves.items(), ("--", ":", "-"), strict=True):
    axes.plot(range(1, len(values) + 1), values, line, label=name)
axes.set(xlabel="epoch", ylabel="GCIG on the training rows")
axes.set_ylim(bottom=0)
_ = axes.legend()
