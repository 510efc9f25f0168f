"""Several groups and crossed attributes
=====================================

Sex and age of credit applicants are crossed into four groups. The audit compares every pair: the reasons may
agree for women and for young people, and differ for young women.
"""

# %%
# Naming two protected attributes crosses them. Small groups make every figure less certain.

import gcig
from gcig.auditing import audit
from gcig.report.displays import GroupRatesDisplay

data = gcig.load_dataset("german", sensitive=["sex", "age"], include_sensitive=False)
print(data.sensitive_features.value_counts().to_string())
train, test = data.X.index[::2], data.X.index[1::2]

# %%
# FairX takes any number of groups.

model = gcig.FairXClassifier(class_weight="balanced", random_state=0)
model.fit(data.X.loc[train], data.y[train], sensitive_features=data.sensitive_features.loc[train])

# %%
# The audit says in words what it found. GCIG of each pair tells which groups the reasons differ between.

found = audit(
    model,
    data.X.loc[test],
    data.y[test],
    sensitive_features=data.sensitive_features.loc[test],
    n_bootstrap=200,
)
print(f"{found.reason_gap_worst:.3f}  {' | '.join(found.worst_pair)}")
for name, alone in found.by_attribute.items():
    print(f"{name}: reason gap {alone.reason_gap:.3f}, by chance {alone.reason_gap_chance:.3f}")

# %%
# Rates of each group, with intervals that are wide for small groups.

figure = GroupRatesDisplay.from_evaluation(found.evaluation).figure_
