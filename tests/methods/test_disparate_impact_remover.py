import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ks_2samp
from sklearn.base import clone

import gcig
from example_tables import QUICK_BIASED, gaps, make_biased, make_biased_task, task_gap
from gcig._arguments import InputError, InputWarning
from gcig.methods.disparate_impact_remover import DisparateImpactRemoverClassifier, GroupRepair, Quantiles
from gcig.methods.registry import METHODS
from gcig.methods.unconstrained import UnconstrainedClassifier
from gcig.tables.encoding import TableEncoder

SAMPLES = st.lists(st.integers(-5, 5), min_size=1, max_size=40).map(lambda values: np.array(values, float))


def repair(values, groups, repair_level=1.0):
    column, codes = np.asarray(values, float).reshape(-1, 1), pd.factorize(np.asarray(groups), sort=True)[0]
    return GroupRepair.learn(column, codes, resolution=1000, seed=0).apply(column, codes, repair_level)[:, 0]


def distances(columns, groups):
    names = np.unique(groups)
    return [ks_2samp(x[groups == names[0]], x[groups == names[1]]).statistic for x in columns]


# --- the repair --------------------------------------------------------------------------------------


@given(st.data(), st.integers(2, 4), st.integers(2, 12))
def test_groups_of_one_size_without_ties_meet_at_the_median_of_each_rank(data, n_groups, size):
    numbers = st.lists(st.floats(-100, 100, width=16), min_size=size, max_size=size, unique=True)
    samples = [np.array(data.draw(numbers)) for _ in range(n_groups)]
    repaired = repair(np.concatenate(samples), np.repeat(np.arange(n_groups), size))
    medians = np.median([np.sort(sample) for sample in samples], axis=0)
    expected = [medians[np.argsort(np.argsort(sample))] for sample in samples]
    np.testing.assert_allclose(repaired, np.concatenate(expected), atol=1e-9)


def test_groups_of_different_sizes_by_hand():
    # Ranks of group a: 1/4, 3/4; of group b: 1/8, 3/8, 5/8, 7/8. Straight lines between, flat beyond.
    values, groups = [0.0, 8.0, 10.0, 20.0, 30.0, 40.0], list("aabbbb")
    a, b = [(0 + 15) / 2, (8 + 35) / 2], [(0 + 10) / 2, (2 + 20) / 2, (6 + 30) / 2, (8 + 40) / 2]
    np.testing.assert_allclose(repair(values, groups), a + b)


def test_atoms_of_different_size_become_equal():
    rng = np.random.default_rng(0)
    groups = np.repeat(["f", "m"], [3000, 5000])
    gains = np.where(rng.random(8000) < np.where(groups == "f", 0.94, 0.6), 0.0, rng.exponential(size=8000))
    part_time = rng.random(8000) < np.where(groups == "f", 0.8, 0.4)
    hours = np.where(part_time, 20.0, 40.0)
    table = np.column_stack([gains, hours, rng.normal(size=8000)])
    codes = (groups == "m").astype(np.int64)
    repaired = GroupRepair.learn(table, codes, resolution=1000, seed=0).apply(table, codes, 1.0)
    assert min(distances(table.T[:2], groups)) > 0.3
    assert max(distances(repaired.T, groups)) < 0.02


def test_ranks_within_a_group_are_kept():
    biased = make_biased(500)
    for column in ("district", "savings"):
        repaired = repair(biased.X[column], biased.groups)
        for group in ("f", "m"):
            rows = biased.groups == group
            order = np.argsort(biased.X[column][rows].to_numpy(), kind="stable")
            untied = np.diff(biased.X[column][rows].to_numpy()[order]) > 0
            assert (np.diff(repaired[rows][order])[untied] >= -1e-12).all()


def test_the_level_is_the_share_of_the_way():
    values, groups = np.random.default_rng(0).normal(size=40), np.arange(40) % 2
    whole = repair(values + 3 * groups, groups)
    np.testing.assert_array_equal(repair(values + 3 * groups, groups, repair_level=0.0), values + 3 * groups)
    quarter = repair(values + 3 * groups, groups, repair_level=0.25)
    np.testing.assert_allclose(quarter, 0.75 * (values + 3 * groups) + 0.25 * whole)


def test_equal_groups_are_left_as_they_are():
    values = np.array([3.0, 3.0, 5.0, 9.0, 9.0, 9.0])
    np.testing.assert_allclose(repair(np.tile(values, 2), np.repeat([0, 1], 6)), np.tile(values, 2))


def test_constants():
    np.testing.assert_allclose(repair([2.0] * 6, list("aaabbb")), 2.0)
    np.testing.assert_allclose(repair([2.0, 2.0, 6.0, 6.0], list("aabb")), 4.0)


def test_new_values_beyond_training_go_to_the_ends_of_the_median_distribution():
    training, codes = np.array([[0.0], [1.0], [10.0], [21.0]]), np.array([0, 0, 1, 1])
    learned = GroupRepair.learn(training, codes, resolution=1000, seed=0)
    found = learned.apply(np.array([[-50.0], [50.0]]), np.array([0, 1]), 1.0)
    np.testing.assert_allclose(found[:, 0], [5.0, 11.0])


def test_the_seed_moves_ties_and_nothing_else():
    biased = make_biased(300)
    table, codes = biased.X[["district", "savings"]].to_numpy(), (biased.groups == "m").astype(np.int64)
    learned = (GroupRepair.learn(table, codes, resolution=1000, seed=seed) for seed in (1, 1, 2))
    one, same, other = (each.apply(table, codes, 1.0) for each in learned)
    np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(one[:, 0], other[:, 0])
    assert not np.array_equal(one[:, 1], other[:, 1])


# --- the classifier -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def biased():
    return make_biased()


@pytest.fixture(scope="module")
def model(biased):
    return DisparateImpactRemoverClassifier(**QUICK_BIASED).fit(biased.X, biased.y, **biased.by)


def test_the_network_sees_repaired_columns(model, biased):
    plain, seen = TableEncoder().fit_transform(biased.X), model.encode(biased.X, **biased.by)
    assert seen.dtype == np.float32
    assert len(model.repair_.columns) == plain.shape[1]
    assert max(distances(plain.T, biased.groups)) > 0.5
    assert max(distances(seen.T, biased.groups)) < 0.02


def test_a_column_with_the_group_tells_nothing(biased):
    table = biased.X.assign(sex=biased.groups)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # of the column
        model = DisparateImpactRemoverClassifier(**QUICK_BIASED).fit(table, biased.y, **biased.by)
    seen = model.encode(table, **biased.by)
    assert not np.ptp(
        seen[:, [name.startswith("sex=") for name in model.encoder_.encoded_names_]], axis=0
    ).any()


def test_baselines_are_means_of_repaired_rows(model, biased):
    seen = model.encode(biased.X, **biased.by)
    for label in (0, 1):
        for code, group in enumerate(("f", "m")):
            rows = (biased.y == label) & (biased.groups == group)
            np.testing.assert_allclose(model.baselines_[label, code], seen[rows].mean(0), atol=1e-5)


def test_level_zero_is_the_plain_network(biased):
    none = DisparateImpactRemoverClassifier(repair_level=0.0, **QUICK_BIASED).fit(
        biased.X, biased.y, **biased.by
    )
    plain = UnconstrainedClassifier(**QUICK_BIASED).fit(biased.X, biased.y, **biased.by)
    np.testing.assert_array_equal(none.predict_proba(biased.X, **biased.by), plain.predict_proba(biased.X))


def test_selection_rates_come_together(model, biased):
    plain = UnconstrainedClassifier(**QUICK_BIASED).fit(biased.X, biased.y, **biased.by)
    test = make_biased(4000, seed=7)
    before = gaps(plain.predict(test.X), test.y, test.groups)["dp"]
    after = gaps(model.predict(test.X, **test.by), test.y, test.groups)["dp"]
    assert before > 0.25
    assert after < 0.25 * before


@pytest.mark.slow
def test_the_demographic_parity_difference_is_halved_on_nine_of_ten_seeds():
    halved = 0
    for seed in range(10):
        train, test = make_biased(seed=2 * seed), make_biased(4000, seed=2 * seed + 1)
        settings = {**QUICK_BIASED, "random_state": seed}
        fair = DisparateImpactRemoverClassifier(**settings).fit(train.X, train.y, **train.by)
        plain = UnconstrainedClassifier(**settings).fit(train.X, train.y, **train.by)
        after = gaps(fair.predict(test.X, **test.by), test.y, test.groups)["dp"]
        halved += after <= 0.5 * gaps(plain.predict(test.X), test.y, test.groups)["dp"]
    assert halved >= 9


def test_a_row_is_predicted_alike_alone_and_in_a_table(model, biased):
    together = model.decision_function(biased.X[:20], **biased.by_first(20))
    alone = [
        model.decision_function(biased.X.iloc[[i]], sensitive_features=biased.groups[[i]])[0]
        for i in range(20)
    ]
    np.testing.assert_allclose(alone, together, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["encode", "decision_function", "predict_proba", "predict", "explain"])
def test_the_groups_of_new_rows_are_required(model, biased, name):
    call = getattr(model, name)
    with pytest.raises(InputError, match="DisparateImpactRemoverClassifier needs the group of every row"):
        call(biased.X)
    with pytest.raises(InputError, match="not in training: 'x'"):
        call(biased.X[:2], sensitive_features=["f", "x"])
    with pytest.raises(InputError, match="inconsistent"):
        call(biased.X, sensitive_features=["f", "m"])


def test_explanations_are_of_the_repaired_row(model, biased):
    few = biased.X[:30]
    found = model.explain(few, biased.y[:30], **biased.by_first(30), columns="original")
    assert found.columns == tuple(biased.X.columns)
    logits = model.decision_function(few, **biased.by_first(30))
    at_baselines = model.outputs_from_encoded(model.baselines_.reshape(4, -1)).reshape(2, 2)
    expected = logits - at_baselines[biased.y[:30]].T
    np.testing.assert_allclose(found.attributions.sum(2), expected, atol=1e-2)


@pytest.mark.parametrize("task", ["classes", "number"])
def test_decisions_of_every_task_come_together(task):
    data, test = make_biased_task(task), make_biased_task(task, 4000, seed=7)
    plain, fair = (
        METHODS[key].estimator_for(task)(**QUICK_BIASED).fit(data.X, data.y, **data.by)
        for key in ("unconstrained", "dir")
    )
    before, after = (task_gap(each, test, "demographic_parity") for each in (plain, fair))
    assert before > 0.2
    assert after < 0.25 * before
    assert fair.score(test.X, test.y, **test.by) > plain.score(test.X, test.y) - 0.15


def test_a_saved_model_predicts_the_same(model, biased, tmp_path):
    model.save(tmp_path / "model")
    loaded = gcig.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.encode(biased.X, **biased.by), model.encode(biased.X, **biased.by))
    np.testing.assert_array_equal(
        loaded.predict_proba(biased.X, **biased.by), model.predict_proba(biased.X, **biased.by)
    )
    assert loaded.get_params() == model.get_params()


def test_a_clone_fitted_again_is_the_same_model(model, biased):
    again = clone(model).fit(biased.X, biased.y, **biased.by)
    np.testing.assert_array_equal(
        again.predict_proba(biased.X, **biased.by), model.predict_proba(biased.X, **biased.by)
    )


def test_numbers_without_preprocessing_and_three_groups():
    biased = make_biased(600, groups=("a", "b", "c"))
    numbers = np.column_stack([biased.X.drop(columns="job"), biased.X["job"] == "nurse"]).astype(float)
    settings = {**QUICK_BIASED, "preprocessing": "none"}
    model = DisparateImpactRemoverClassifier(**settings).fit(numbers, biased.y, **biased.by)
    assert len(model.repair_.columns) == 5
    seen = model.encode(numbers, **biased.by)
    assert ks_2samp(seen[biased.groups == "a", 2], seen[biased.groups == "c", 2]).statistic < 0.03


def test_warm_start_keeps_the_quantiles(biased):
    settings = {**QUICK_BIASED, "max_epochs": 2, "warm_start": True}
    model = DisparateImpactRemoverClassifier(**settings).fit(biased.X, biased.y, **biased.by)
    repair = model.repair_
    model.fit(biased.X[:500], biased.y[:500], **biased.by_first(500))
    assert model.repair_ is repair
    renamed = np.where(biased.groups == "f", "women", "men")
    with pytest.raises(InputError, match="warm_start continues with the quantiles of the groups f, m"):
        model.fit(biased.X, biased.y, sensitive_features=renamed)


def test_a_constant_column_and_missing_cells():
    biased = make_biased(300)
    table = biased.X.assign(constant=1.5)
    table.loc[::5, "district"] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)  # of the constant column
        model = DisparateImpactRemoverClassifier(**QUICK_BIASED).fit(table, biased.y, **biased.by)
    seen = model.encode(table, **biased.by)
    assert np.isfinite(seen).all()
    names = model.encoder_.encoded_names_
    assert not seen[:, names.index("constant")].any()
    shares = [seen[biased.groups == group, names.index("district=missing")].mean() for group in "fm"]
    assert abs(shares[0] - shares[1]) < 0.02


def test_parameters_are_checked():
    biased = make_biased(60)
    with pytest.raises(InputError, match="repair_level"):
        DisparateImpactRemoverClassifier(repair_level=-0.1, **QUICK_BIASED).fit(
            biased.X, biased.y, **biased.by
        )


@given(SAMPLES)
def test_ranks_are_the_middles_of_the_rows_with_the_value(sample):
    first, last = Quantiles.of(sample).ranks(sample)
    for value, low, high in zip(sample, first, last, strict=True):
        below, upto = (sample < value).sum(), (sample <= value).sum()
        assert low == pytest.approx((below + 0.5) / len(sample))
        assert high == pytest.approx((upto - 0.5) / len(sample))


@given(SAMPLES, st.floats(0, 1))
def test_the_quantile_of_a_rank_is_the_value_that_has_it(sample, place):
    quantiles = Quantiles.of(sample)
    first, last = quantiles.ranks(sample)
    np.testing.assert_allclose(quantiles.at(first + place * (last - first)), sample, atol=1e-12)


@given(SAMPLES, st.lists(st.floats(-7, 7), min_size=2, max_size=20))
def test_ranks_grow_with_the_value_also_between_and_beyond_those_of_the_sample(sample, values):
    x = np.sort(np.array(values))
    first, last = Quantiles.of(sample).ranks(x)
    assert (first <= last).all()
    assert (last[:-1] <= first[1:] + 1e-12)[np.diff(x) > 0].all()
    assert (first >= 0).all()
    assert (last <= 1).all()


def test_it_is_the_piecewise_linear_quantile_function():
    sample = np.random.default_rng(0).normal(size=51)
    ranks = np.linspace(0, 1, 200)
    expected = np.quantile(sample, ranks, method="hazen")
    np.testing.assert_allclose(Quantiles.of(sample).at(ranks), expected)


def test_a_large_sample_is_kept_in_few_numbers_with_ranks_exact_to_the_resolution():
    rng = np.random.default_rng(0)
    sample = np.concatenate(
        [np.zeros(30_000), np.round(rng.exponential(size=30_000), 3), rng.normal(size=40_000)]
    )
    quantiles = Quantiles.of(sample, resolution=500)
    assert len(quantiles.values) == 500
    first, last = quantiles.ranks(sample)
    order = np.sort(sample)
    below = np.searchsorted(order, sample, "left") / len(sample)
    upto = np.searchsorted(order, sample, "right") / len(sample)
    assert np.abs((first + last) / 2 - (below + upto) / 2).max() < 2 / 500
    zero = sample == 0
    assert np.abs((last - first)[zero] - (upto - below)[zero]).max() < 2 / 500


@pytest.mark.parametrize("values", [[], [np.nan], [2.0, 1.0]])
def test_other_values_are_no_distribution(values):
    with pytest.raises(ValueError, match="finite values in ascending order"):
        Quantiles(np.array(values))


@pytest.mark.parametrize(("samples", "expected"), [(([1.0], [3.0], [100.0]), 3.0), (([1.0], [3.0]), 2.0)])
def test_the_median_of_three_is_the_middle_one_and_of_two_the_mean(samples, expected):
    values, groups = (
        [value for sample in samples for value in sample * 2],
        np.repeat(list("abc"[: len(samples)]), 2),
    )
    np.testing.assert_allclose(repair(values, groups), expected)
