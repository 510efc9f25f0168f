import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from example_tables import QUICK, make_loans
from gcig._arguments import InputError
from gcig.core.definition import Definition
from gcig.methods.explanation import Explanation
from gcig.methods.fairx.estimator import FairXClassifier
from gcig.metrics import gcig_score

LOANS, TEST = make_loans(), make_loans(50, seed=1)


@pytest.fixture(scope="module")
def model():
    return FairXClassifier(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups)


@pytest.fixture(scope="module")
def explanation(model):
    return model.explain(TEST.X, TEST.y, columns="raw")


def test_shapes_and_names(model, explanation):
    assert explanation.attributions.shape == (2, 50, 7)
    assert explanation.disparity.shape == (50,)
    assert explanation.completeness.shape == (2, 50)
    assert explanation.groups == model.groups_
    assert explanation.columns == model.encoder_.encoded_names_
    assert explanation.labels.tolist() == TEST.y.tolist()
    assert explanation.label_source == "given"
    assert len(explanation) == 50


def test_attributions_add_up_to_the_difference_of_the_logits(model, explanation):
    scores = model.decision_function(TEST.X)
    with torch.no_grad():
        starts = model.module_(torch.from_numpy(model.baselines_).flatten(0, 1)).view(2, 2).double().numpy()
    for group in (0, 1):
        expected = scores - starts[TEST.y, group]
        assert np.allclose(explanation.attributions[group].sum(1), expected, atol=1e-3)
    assert explanation.completeness.max() < 1e-3


def test_original_columns_are_sums_of_encoded_ones(model, explanation):
    original = model.explain(TEST.X, TEST.y)
    assert original.columns == ("income", "debt", "age", "job", "owner")
    jobs = [i for i, name in enumerate(explanation.columns) if name.startswith("job=")]
    assert len(jobs) == 3
    assert np.allclose(original.attributions[..., 3], explanation.attributions[..., jobs].sum(-1), atol=1e-6)
    assert np.allclose(original.attributions[..., 0], explanation.attributions[..., 0])
    assert np.array_equal(original.completeness, explanation.completeness)
    assert original.definition["columns"] == "original"


@pytest.mark.parametrize("columns", ["raw", "original"])
def test_the_mean_disparity_is_gcig(model, columns):
    found = model.explain(TEST.X, TEST.y, columns=columns)
    expected = gcig_score(model, TEST.X, TEST.y, **TEST.groups, definition=Definition(columns=columns))
    assert found.disparity.mean() == pytest.approx(expected, rel=1e-2)


def test_without_labels_the_predicted_ones_are_used_and_it_says_so(model):
    found = model.explain(TEST.X)
    predicted = model.predict(TEST.X)
    assert found.label_source == "predicted"
    assert "predicted labels" in repr(found)
    assert np.array_equal(found.labels, predicted)
    given = model.explain(TEST.X, predicted)
    assert np.array_equal(found.attributions, given.attributions)
    assert "given labels" in repr(given)


def test_predicted_labels_follow_the_threshold():
    model = FairXClassifier(**QUICK, threshold=0.9).fit(LOANS.X, LOANS.y, **LOANS.groups)
    assert np.array_equal(model.explain(TEST.X).labels, model.predict(TEST.X))


def test_labels_are_classes():
    answers = LOANS.y.map({0: "no", 1: "yes"})
    model = FairXClassifier(**QUICK).fit(LOANS.X, answers, **LOANS.groups)
    assert set(model.explain(TEST.X).labels) <= {"no", "yes"}
    with pytest.raises(InputError, match=r"labels that were not in training \('maybe'\)"):
        model.explain(TEST.X, ["maybe"] * 50)
    with pytest.raises(InputError, match="X has 50 rows, y has 1"):
        model.explain(TEST.X, ["yes"])


def test_one_row(model, explanation):
    single = model.explain(TEST.X.iloc[:1], TEST.y.iloc[:1], columns="raw")
    assert single.attributions.shape == (2, 1, 7)
    assert np.allclose(single.attributions[:, 0], explanation.attributions[:, 0], atol=1e-3)


def test_other_columns_are_refused(model):
    with pytest.raises(ValueError, match="columns must be one of"):
        model.explain(TEST.X, columns="all")


def test_the_definition_says_how_the_path_was_integrated(explanation):
    assert isinstance(explanation.definition["n_steps"], int)
    Definition(**explanation.definition)


def test_the_frame_is_tidy_and_consistent(explanation):
    tidy = explanation.to_frame()
    assert list(tidy.columns) == ["row", "label", "group", "column", "attribution", "disparity"]
    assert len(tidy) == 50 * 2 * 7
    assert not tidy.duplicated(["row", "group", "column"]).any()
    wide = tidy.pivot(index="row", columns=["group", "column"], values="attribution")
    for g, group in enumerate(explanation.groups):
        for c, column in enumerate(explanation.columns):
            assert np.array_equal(wide[group, column], explanation.attributions[g, :, c])
    by_row = tidy.groupby("row")
    assert np.array_equal(by_row["disparity"].first(), explanation.disparity)
    assert by_row["disparity"].nunique().eq(1).all()
    assert np.array_equal(by_row["label"].first(), explanation.labels)


def test_top_columns_are_those_with_the_largest_attributions(model, explanation):
    top = explanation.top_columns(2)
    means = np.abs(explanation.attributions).mean((0, 1))
    assert list(top.index) == [explanation.columns[i] for i in np.argsort(-means)[:2]]
    # Categories of one column share what it says: "income" is first among the columns of the table.
    assert model.explain(TEST.X, TEST.y, columns="original").top_columns(1).index[0] == "income"
    assert list(top.columns) == ["female", "male"]
    assert top["male"].iloc[0] == pytest.approx(
        np.abs(explanation.attributions[1, :, np.argmax(means)]).mean()
    )


def small(attributions, columns=("a", "b"), groups=("f", "m"), disparity=None):
    attributions = np.asarray(attributions, dtype=np.float32)
    n = attributions.shape[1]
    disparity = np.zeros(n) if disparity is None else np.asarray(disparity)
    return Explanation(
        attributions, disparity.astype(np.float32), np.zeros((2, n)), groups, columns, np.zeros(n), "given"
    )


def test_rows_without_reasons_are_counted_and_not_called_fair():
    found = small(np.ones((2, 3, 2)), disparity=[0.2, np.nan, 0.4])
    assert repr(found).endswith("mean disparity 0.300 (1 rows have vanishing attributions or no reference)")
    nothing = small(np.zeros((2, 2, 2)), disparity=[np.nan, np.nan])
    assert "disparity undefined (2 rows have vanishing attributions or no reference)" in repr(nothing)


def test_html_is_escaped():
    found = small(np.ones((2, 1, 2)), columns=("<script>alert(1)</script>", "b&c"), groups=("<b>f</b>", "m"))
    html = found._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "<b>f</b>" not in html
    assert "b&amp;c" in html


def test_names_from_a_hostile_table_are_escaped_as_well():
    X = LOANS.X.rename(columns={"income": "<script>x</script>"})
    sex = LOANS.sex.map({"female": "<img src=x>", "male": "m"})
    model = FairXClassifier(**QUICK).fit(X, LOANS.y, sensitive_features=sex)
    html = model.explain(X.iloc[:3])._repr_html_()
    assert "<script>" not in html
    assert "<img" not in html


def test_a_constant_network_has_no_reasons():
    network = nn.Linear(3, 1)
    nn.init.zeros_(network.weight)
    model = FairXClassifier.from_module(network, **{**QUICK, "learning_rate": 1e-30, "weight_decay": 0.0})
    with pytest.warns(UserWarning, match="collapsed"):
        model.fit(LOANS.numbers, LOANS.y, **LOANS.groups)
    nn.init.zeros_(model.module_.weight)
    found = model.explain(LOANS.numbers[:10])
    assert np.isnan(found.disparity).all()
    assert "undefined" in repr(found)
    assert isinstance(found.to_frame(), pd.DataFrame)


def test_centred_columns_are_not_explained(model):
    with pytest.raises(InputError, match="gcig_encoded"):
        model.explain(TEST.X, TEST.y, columns="encoded")
