"""Audit somebody else's model
===========================

Boosted trees that another team trained are given to you with a test table. An audit measures how much their
reasons and their decisions depend on race, and states in words what it found and how certain that is.
"""

# %%
# The model of the other team: scikit-learn's boosted trees on the COMPAS data, which predict whether a
# defendant is charged again within two years. Nothing in it knows about gcig.

from sklearn.ensemble import HistGradientBoostingClassifier

import gcig

data = gcig.load_dataset("compas", include_sensitive=False)
columns = ["age", "priors_count", "juv_fel_count", "c_charge_degree"]
rows = data.X.sample(2000, random_state=0).index
train, test = rows[:1500], rows[1500:]

model = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=40, random_state=0)
model.fit(data.X.loc[train, columns], data.y[train])

# %%
# Trees have no gradients, so they are explained by Shapley values of the logit, relative to the same
# references. The audit below explains 100 rows; the default is 1,000.

found = gcig.audit(
    model,
    data.X.loc[test, columns],
    data.y[test],
    sensitive_features=data.sensitive_features[test],
)
print(found)

# %%
# A limit turns the audit into a gate. In the shell, ``gcig audit`` does the same and exits with 1 if it
# fails.

print(found.check(max_reason_gap=0.1))

# %%
# The columns in which reasons differ most, for everyone with one outcome alike.

columns = found.reason_gap_common_columns
print(sorted(columns, key=columns.get, reverse=True)[:3])

# %%
# ``found.to_html("audit.html")`` writes the report for the people who decide, and
# ``found.to_json("audit.json")`` the record that the next audit can be compared with.
