r"""The paper in one page
=====================

The definition of GCIG computed step by step on the German credit data, and the published algorithm next to a
plain network. ``make paper`` runs all experiments; this page shows their ingredients.
"""

# %%
# The paper trains a network with logit :math:`f` on encoded rows :math:`x` with label :math:`y` and group
# :math:`g`. Here it is FairX as published (Algorithm 1 to the letter), and the same network without
# penalty.

import numpy as np
import torch
from matplotlib import pyplot as plt

import gcig
from gcig.core.attribution import IntegratedGradients, Score
from gcig.core.gcig import disparity, normalise
from gcig.core.task import Binary
from gcig.methods import METHODS

data = gcig.load_dataset("german")
sex = data.sensitive_features
models = {key: METHODS[key].estimator(random_state=0) for key in ("unconstrained", "fairx-paper")}
for model in models.values():
    model.fit(data.X, data.y, sensitive_features=sex)

# %%
# **Baselines.** :math:`\hat b_{y,g}` is the mean encoded row of each label and group.

plain = models["unconstrained"]
x = torch.from_numpy(plain.encode(data.X))
y = torch.tensor(data.y.to_numpy())
groups = torch.tensor((sex == plain.groups_[1]).to_numpy().astype("int64"))
baselines = gcig.GroupBaselines.from_data(x, y, groups)
print("labels, groups, encoded columns:", tuple(baselines.values.shape))

# %%
# **Attributions.** Integrated gradients :math:`\mathrm{IG}^{(g)}(x; y)` follow the straight path from each
# group's baseline to the row. They sum to the difference in the logit: completeness.


def explain(network, rows):
    """Return the integrated gradients of the rows relative to each group's baseline."""
    score = Score.of(network, Binary(), y)
    return IntegratedGradients(n_steps=8).attribute(score, rows, baselines.of(y))


found = explain(plain.module_, x)
print("groups, rows, columns:", tuple(found.shape))
with torch.no_grad():
    logits = plain.module_(x), plain.module_(baselines.values.flatten(0, 1)).view(2, 2)[y].T
print("largest gap in completeness:", float((found.sum(-1) - (logits[0] - logits[1])).abs().max()))

# %%
# **Disparity.** Attributions are divided by their l1 norm; :math:`V(x; y)` is the distance between the
# groups' normalised attributions, and GCIG its mean. ``gcig_score`` gives the same number with the paper's
# columns.

one_by_one = disparity(normalise(found))
print(f"step by step  {float(one_by_one.mean()):.4f}")
paper = gcig.Definition(columns="raw")
score = gcig.metrics.gcig_score(plain, data.X, data.y, sensitive_features=sex, definition=paper)
print(f"gcig_score    {score:.4f}")

# %%
# **Algorithm 1** adds the mean of :math:`V` to the loss. Compared on the training rows:

disparities = {}
for key, model in models.items():
    explained = explain(model.module_, torch.from_numpy(model.encode(data.X)))
    disparities[METHODS[key].label] = disparity(normalise(explained)).detach().numpy()
for label, values in disparities.items():
    print(f"{label:20} GCIG {values.mean():.3f}")

figure, axes = plt.subplots(layout="constrained")
edges = np.linspace(0, max(values.max() for values in disparities.values()), 40)
for label, values in disparities.items():
    axes.hist(values, bins=edges, alpha=0.6, label=label)
axes.set(xlabel="disparity of a person", ylabel="people")
_ = axes.legend()
