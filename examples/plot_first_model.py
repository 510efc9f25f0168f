"""A first fair model
==================

From a table to a classifier whose reasons depend less on sex: train it, measure what that cost and gained on
people it has not seen, look at the reasons for one of them, and save it.
"""

# %%
# The Adult data describe people in the US census of 1994; the label says whether they earned more than
# 50,000 dollars. Sex is the protected attribute and not among the inputs. A part of the rows keeps this
# page quick.

import tempfile

import gcig
from gcig.methods import METHODS
from gcig.report.displays import ParetoDisplay, TradeOff

data = gcig.load_dataset("adult", include_sensitive=False)
table = data.X.drop(columns="native-country")
rows = table.sample(6000, random_state=0).index
train, test = rows[:4000], rows[4000:]
table.loc[train].head(3)

# %%
# Train two networks: a plain one, and FairX. Both take the table as it is; text and missing values are
# encoded.

models = {key: METHODS[key].estimator(random_state=0) for key in ("unconstrained", "fairx")}
for model in models.values():
    model.fit(table.loc[train], data.y[train], sensitive_features=data.sensitive_features[train])

# %%
# Measure both on the other rows. AUC is how well a model ranks people. The EO gap is how much its error
# rates differ between the groups, and the reason gap how much its reasons do. With 2,000 rows even an exactly
# fair model shows an EO gap, which is printed as well.

points = []
for key, model in models.items():
    label = METHODS[key].label
    found = gcig.evaluate(
        model, table.loc[test], data.y[test], sensitive_features=data.sensitive_features[test]
    )
    print(
        f"{label:14} AUC {found.auc:.3f}  reason gap {found.reason_gap:.3f} "
        f"[{found.reason_gap_low:.3f}, {found.reason_gap_high:.3f}]  EO gap {found.eo_gap:.3f} "
        f"(an exactly fair model: {found.eo_noise_floor:.3f})"
    )
    points.append(TradeOff(label, found.figure("auc").interval, found.figure("reason_gap").interval))

figure = ParetoDisplay(points).plot().figure_

# %%
# The reasons for single people: how much each column raised or lowered the score relative to the typical
# woman and relative to the typical man with the same predicted label.

models["fairx"].explain(table.loc[test[:1]]).top_columns()

# %%
# Predictions need no group, and a new person can be a dict. A saved model is a folder of JSON and tensors;
# no code is stored in it.

person = table.loc[test[0]].to_dict()
folder = tempfile.mkdtemp() + "/model"
models["fairx"].save(folder)
gcig.load(folder).predict_proba(person).round(3)
