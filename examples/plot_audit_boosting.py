"""Audit a gradient boosting model
===============================

Boosted trees have no gradients, so they are explained by Shapley values of the logit. The audit states in
words what it found and how certain that is; the chart shows the attributions under each reference.
"""

from sklearn.ensemble import HistGradientBoostingClassifier

import gcig
from gcig.auditing import audit
from gcig.report.displays import AttributionProfileDisplay

data = gcig.load_dataset("compas", include_sensitive=False)
columns = ["age", "priors_count", "juv_fel_count", "c_charge_degree"]
rows = data.X.sample(2000, random_state=0).index
train, test = rows[:1500], rows[1500:]

model = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=40, random_state=0)
model.fit(data.X.loc[train, columns], data.y[train])

found = audit(
    model,
    data.X.loc[test, columns],
    data.y[test],
    sensitive_features=data.sensitive_features[test],
    max_rows_explained=100,  # the default is 1,000
    n_shuffles=39,
)
print(found)
print(found.check(max_gcig=0.1))

figure = AttributionProfileDisplay.from_record(found.record).figure_
