"""Results in notebooks: short tables, nothing that runs, no row of a person."""

from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import gcig
from example_tables import QUICK_CREDIT
from gcig.auditing import audit
from gcig.benchmark.comparison import ComparisonResult, compare

COLUMN, GROUP = "<script>alert(1)</script>", '"><img src=x onerror=alert(1)> & more'
SECRET = 123456.789


class Shown(HTMLParser):
    """The tags, attributes and text of markup, as a browser reads them."""

    def __init__(self, markup):
        super().__init__()
        self.tags, self.attributes, self.texts, self.open = [], [], [], []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({COLUMN: rng.normal(size=160), "b": rng.normal(size=160), "salary": SECRET})
    X.loc[1:, "salary"] = rng.normal(size=159)
    y = pd.Series((X[COLUMN] + rng.normal(size=160) > 0).astype(int))
    groups = pd.Series(np.where(np.arange(160) % 2, GROUP, "m"), name="sex")
    return {"X": X, "y": y, "sensitive_features": groups}


@pytest.fixture(scope="module")
def linear(rows):
    return LogisticRegression().fit(rows["X"], rows["y"])


def make_evaluation(rows, linear):
    return gcig.evaluate(linear, **rows, n_bootstrap=5)


def make_explanation(rows, linear):
    model = gcig.FairXClassifier(**{**QUICK_CREDIT, "budget": 0})
    with pytest.warns(gcig.InputWarning, match="'salary'"):  # one entry is far from the others
        model.fit(**rows)
    return model.explain(rows["X"], rows["y"])


def make_audit(rows, linear):
    return audit(linear, **rows, n_bootstrap=5, name=COLUMN)


def make_comparison(rows, linear):
    quick = {"unconstrained": {**QUICK_CREDIT, "max_epochs": 1}}
    return compare(**rows, methods=["unconstrained"], parameters=quick, folds=2, name=COLUMN)


MAKE = [make_evaluation, make_explanation, make_audit, make_comparison]


@pytest.fixture(scope="module", params=MAKE, ids=lambda make: make.__name__.removeprefix("make_"))
def result(request, rows, linear):
    return request.param(rows, linear)


def test_markup_is_plain_tables_that_close(result):
    shown = Shown(result._repr_html_())
    assert set(shown.tags) <= {
        "p",
        "strong",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "details",
        "summary",
    }
    assert "table" in shown.tags
    assert not shown.attributes
    assert not shown.open


def test_names_come_through_as_they_are(result):
    # A comparison of one table on one method shows no name of the user's.
    found = [
        name for name in (COLUMN, GROUP) if any(name in text for text in Shown(result._repr_html_()).texts)
    ]
    assert found or isinstance(result, ComparisonResult)


def test_no_row_of_a_person_is_shown(result):
    for text in (result._repr_html_(), repr(result), str(result)):
        assert str(SECRET) not in text
        assert "123456" not in text


def test_all_are_short(result):
    assert result._repr_html_().split("<details>")[0].count("<tr>") <= 20
    assert len(repr(result)) < 600
    assert "object at 0x" not in repr(result)


def test_what_is_not_defined_is_said_in_words(rows):
    constant = gcig.metrics.evaluate_predictions(
        rows["y"], np.zeros(160), sensitive_features=rows["sensitive_features"]
    )
    assert "nan" not in constant._repr_html_().lower()
    assert "undefined" in constant._repr_html_()
    assert repr(constant).startswith("<Evaluation of 160 rows: auc 0.5")
    assert repr(constant).endswith("collapsed>")
    assert "gcig" not in repr(constant)


def test_an_evaluation_shows_its_main_figures_once(rows, linear):
    evaluation = make_evaluation(rows, linear)
    texts = Shown(evaluation._repr_html_()).texts
    for name in ("auc", "accuracy", "outcome_gap", "eo_gap", "reason_gap", "gcig"):
        assert texts.count(evaluation.figure(name).title) == 1, name
    assert texts.count("selection_rate") == 1  # a column of the table of groups


def test_few_figures_are_all_shown(rows, linear):
    few = gcig.evaluate(linear, **rows, n_bootstrap=0, measures=["f1", "delta_tpr"])
    texts = Shown(few._repr_html_()).texts
    assert all(texts.count(each.title) == 1 for each in few.figures)
