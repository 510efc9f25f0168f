"""The trade-off between fairness and accuracy
===========================================

Each point is a network trained under a different budget on a part of the Adult census data: the share of what
the plain network knows that may be given up for equal reasons. The dashed line connects the networks that no
other one dominates; collapsed networks would be drawn hollow.
"""

# %%
# A part of the rows keeps this page quick: 2,000 people to train on and 2,000 to measure on.

import warnings

import gcig
from gcig.report.displays import ParetoDisplay, TradeOff

data = gcig.load_dataset("adult", include_sensitive=False)
table = data.X.drop(columns="native-country")
rows = table.sample(4000, random_state=0).index
train, test = rows[:2000], rows[2000:]

# %%
# Train one network per budget, and measure each on the other rows. Next to AUC and the reason gap, the
# effective number of columns shows that no network escapes by using a single column. ``path`` does this in
# one call, each network starting at its neighbour.

warnings.simplefilter("ignore", gcig.BoundWarning)  # 2,000 rows say little about the budget on new rows
points = []
for budget in (0.0, 0.01, 0.03, 0.1, 0.3):
    model = gcig.FairXClassifier(budget=budget, outcome_weight=0.0, max_epochs=20, random_state=0)
    model.fit(table.loc[train], data.y[train], sensitive_features=data.sensitive_features[train])
    found = gcig.evaluate(
        model,
        table.loc[test],
        data.y[test],
        sensitive_features=data.sensitive_features[test],
        n_bootstrap=0,
    )
    columns = found.effective_columns
    print(f"budget {budget:4}  AUC {found.auc:.3f}  reason gap {found.reason_gap:.3f}  columns {columns:.1f}")
    points.append(TradeOff(f"budget {budget:g}", found.auc, found.reason_gap, collapsed=found.collapsed))

# %%
# Networks further to the top left have a higher AUC at a lower reason gap.

figure = ParetoDisplay(points).plot().figure_
