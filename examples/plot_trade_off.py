"""The trade-off between fairness and accuracy
===========================================

Each point is a network trained with a different weight of the GCIG term on a part of the Adult census data.
The dashed line connects the networks that no other one dominates; collapsed networks would be drawn hollow.
High weights gain little, because FairX lowers them if AUC is lost.
"""

# %%
# A part of the rows keeps this page quick: 2,000 people to train on and 2,000 to measure on.

import warnings

import gcig
from gcig.report.charts import TradeOff
from gcig.report.displays import ParetoDisplay

data = gcig.load_dataset("adult", include_sensitive=False)
table = data.X.drop(columns="native-country")
rows = table.sample(4000, random_state=0).index
train, test = rows[:2000], rows[2000:]

# %%
# Train one network per weight, and measure each on the other rows. Next to AUC and GCIG, the effective number
# of columns shows that no network escapes by using a single column.

warnings.simplefilter("ignore", gcig.ReasonsWarning)  # high weights on 2,000 rows cost faithfulness
points = []
for weight in (0.0, 0.1, 0.3, 1.0, 3.0):
    model = gcig.FairXClassifier(lambda_ig=weight, lambda_fair=0.0, max_epochs=20, random_state=0)
    model.fit(table.loc[train], data.y[train], sensitive_features=data.sensitive_features[train])
    found = gcig.evaluate(
        model,
        table.loc[test],
        data.y[test],
        sensitive_features=data.sensitive_features[test],
        n_bootstrap=0,
    )
    columns = found.effective_columns
    print(f"lambda_ig {weight:3}  AUC {found.auc:.3f}  GCIG {found.gcig:.3f}  columns {columns:.1f}")
    points.append(TradeOff(f"{weight:g}", found.auc, found.gcig, found.eo_gap, collapsed=found.collapsed))

# %%
# Networks further to the top left have a higher AUC at a lower GCIG.

figure = ParetoDisplay(points).plot().figure_
