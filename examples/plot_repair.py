"""Repair a trained network
========================

A network was trained for accuracy alone. FairX changes its reasons and keeps its predictions within a budget.
``changes_`` reports the cost on rows held out of the repair.
"""

# %%
# The network as its owners trained it, on a part of the COMPAS data: the inputs are encoded once, and plain
# PyTorch does the rest.

import torch
from matplotlib import pyplot as plt
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import gcig
from gcig.report.displays import DisparityDisplay
from gcig.tables.encoding import TableEncoder

data = gcig.load_dataset("compas", include_sensitive=False)
few = data.X.sample(2000, random_state=0).index
table, labels, race = data.X.loc[few], data.y[few], data.sensitive_features[few]

rows = TableEncoder().fit(table).transform(table)
torch.manual_seed(0)
network = nn.Sequential(nn.Linear(rows.shape[1], 32), nn.SiLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
inputs, targets = torch.from_numpy(rows), torch.tensor(labels.to_numpy(), dtype=torch.float32)
for _ in range(10):
    for batch in torch.randperm(len(inputs)).split(100):
        loss = binary_cross_entropy_with_logits(network(inputs[batch]).flatten(), targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

# %%
# Repair it. First, ``fit`` checks what depends on race beyond chance: that alone is repaired.

repaired = gcig.FairXClassifier.from_module(network, max_epochs=15, random_state=0)
repaired.fit(rows, labels, sensitive_features=race)
print(repaired.check_)
print(repaired.changes_.round(3))

# %%
# The disparity of single rows after the repair: rows at 0 have reasons that do not depend on race.

figure, axes = plt.subplots(layout="constrained")
DisparityDisplay.from_estimator(repaired, rows, labels, sensitive_features=race, ax=axes)
_ = axes.set_title("after the repair")
