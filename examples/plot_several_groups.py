"""Several groups and crossed attributes
=====================================

Sex and age of credit applicants are crossed into four groups. The audit compares every pair: the reasons may
agree for women and for young people, and differ for young women.
"""

import gcig
from gcig.auditing import audit
from gcig.report.displays import GroupRatesDisplay

data = gcig.load_dataset("german", sensitive=["sex", "age"], include_sensitive=False)
print(data.sensitive_features.value_counts().to_string())
train, test = data.X.index[::2], data.X.index[1::2]

model = gcig.FairXClassifier(class_weight="balanced", random_state=0)
model.fit(data.X.loc[train], data.y[train], sensitive_features=data.sensitive_features.loc[train])

found = audit(
    model,
    data.X.loc[test],
    data.y[test],
    sensitive_features=data.sensitive_features.loc[test],
    n_bootstrap=200,
    n_shuffles=39,
)
print(found.record.verdict.headline)
for pair in sorted(found.record.procedural.pairs, key=lambda pair: -pair.gcig.value):
    print(f"{pair.gcig.value:.3f}  {pair.first} | {pair.second}")

figure = GroupRatesDisplay.from_record(found.record).figure_
