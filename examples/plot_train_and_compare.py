"""Compare FairX with a plain network
==================================

Two networks are trained on 4,000 rows of the Adult census data and measured on 2,000 others: what does it
cost to have reasons that depend less on sex?
"""

import gcig
from gcig.methods import METHODS
from gcig.report.charts import TradeOff
from gcig.report.displays import ParetoDisplay

data = gcig.load_dataset("adult", include_sensitive=False)
table = data.X.drop(columns="native-country")
rows = table.sample(6000, random_state=0).index
train, test = rows[:4000], rows[4000:]

points = []
for key in ("unconstrained", "fairx"):
    method = METHODS[key]
    model = method.estimator(random_state=0)
    model.fit(table.loc[train], data.y[train], sensitive_features=data.sensitive_features[train])
    found = gcig.evaluate(
        model, table.loc[test], data.y[test], sensitive_features=data.sensitive_features[test]
    )
    print(
        f"{method.label:14} AUC {found.auc:.3f}  GCIG {found.gcig:.3f} "
        f"[{found.gcig_low:.3f}, {found.gcig_high:.3f}]  EO gap {found.eo_gap:.3f} "
        f"(an exactly fair model: {found.eo_noise_floor:.3f})"
    )
    points.append(TradeOff(method.label, found.auc, found.gcig, found.eo_gap))

figure = ParetoDisplay(points).plot().figure_
