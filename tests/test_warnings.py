"""The lines that warnings point at."""

import inspect
import warnings

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import gcig
from gcig._arguments import warn_caller
from gcig.tables.check import check_labels
from gcig.tables.encoding import TableEncoder

DATA = gcig.load_dataset("german")
ROWS = {"sensitive_features": DATA.sensitive_features}
QUICK = {"max_epochs": 1, "budget": 0, "hidden_sizes": (4,), "random_state": 0}
COLUMN = np.array([[0], [1]])
TELLING = DATA.X.assign(sex=DATA.sensitive_features)


@pytest.mark.parametrize(
    "call",
    [
        lambda: gcig.FairXClassifier(**QUICK).fit(TELLING, DATA.y, **ROWS),
        lambda: gcig.FairXClassifier(**QUICK).fit(DATA.X, DATA.y.to_frame(), **ROWS),
        lambda: TableEncoder().fit(DATA.X.assign(same=1)),
        lambda: check_labels(COLUMN),
        lambda: gcig.metrics.equalized_odds_gap([0, 1], [0, 1], sensitive_features=["a", "b"]),
    ],
    ids=["a table", "labels", "an encoder", "a check", "a metric"],
)
def test_a_warning_points_at_the_line_that_called(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert {each.filename for each in caught} == {__file__}
    assert {each.lineno for each in caught} == {inspect.getsourcelines(call)[1]}


def test_or_at_the_library_that_called():
    model = make_pipeline(FunctionTransformer(), gcig.FairXClassifier(**QUICK))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(TELLING, DATA.y, fairxclassifier__sensitive_features=DATA.sensitive_features)
    assert caught
    assert all(each.filename.endswith("pipeline.py") for each in caught)


def test_the_origin_is_known_for_categories_of_other_libraries():
    with pytest.warns(FutureWarning, match="soon") as caught:
        warn_caller("soon", FutureWarning)
    assert caught[0].message.origin == "gcig"
