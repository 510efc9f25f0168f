"""The trade-off between fairness and accuracy
===========================================

Each point is a network trained with a different weight of the GCIG term on a part of the Adult census data.
The dashed line connects the networks that no other one dominates; collapsed networks would be drawn hollow.
High weights gain little, because FairX lowers them if AUC is lost.
"""

import warnings

import gcig
from gcig.report.charts import TradeOff
from gcig.report.displays import ParetoDisplay

data = gcig.load_dataset("adult", include_sensitive=False)
table = data.X.drop(columns="native-country")
rows = table.sample(4000, random_state=0).index
train, test = rows[:2000], rows[2000:]

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

figure = ParetoDisplay(points).plot().figure_
