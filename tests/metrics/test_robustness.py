"""GCIG under several references: against code that shares nothing with it, and the conclusions."""

import copy
import math

import numpy as np
import pandas as pd
import pytest
import torch
from benchmarks import references
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import gcig
from gcig._validation import InputError
from gcig.adapters import adapt
from gcig.auditing import audit, audit_file
from gcig.core.definition import Definition
from gcig.metrics import evaluate
from gcig.metrics.members import MemberPool
from gcig.metrics.reasons import Comparison
from gcig.metrics.robustness import (
    PanelFigure,
    _distance_of_groups,
    _fairer,
    _without_label,
    conclude,
    measure_panel,
    medoid,
    modal_member,
)
from gcig.metrics.sample import RandomStreams, Sample
from gcig.records import Interval
from gcig.records.trust import REFERENCES

KINDS = {"mean": "mean", "label-free": "label-free", "medoid": "medoid", "common": "common"}


@pytest.fixture(scope="module")
def german():
    data = gcig.load_dataset("german", include_sensitive=False)
    model = gcig.methods.METHODS["unconstrained"].estimator(max_epochs=15, random_state=0)
    return data, model.fit(data.X, data.y, sensitive_features=data.sensitive_features)


def test_every_reference_agrees_with_independent_code(german, monkeypatch) -> None:
    data, model = german
    rows = (data.X, data.y, data.sensitive_features)
    found = evaluate(
        model, *rows[:2], sensitive_features=rows[2], reference=rows, robustness=True, n_bootstrap=100
    )
    groups = pd.factorize(data.sensitive_features, sort=True)[0]
    table = references.Table(torch.tensor(model.encode(data.X)).double(), data.y.to_numpy(), groups)
    monkeypatch.setattr(references, "_ROWS", len(data.y))
    monkeypatch.setattr(references, "_MEMBERS", 16)
    expected = references.panel(copy.deepcopy(model.module_).double(), table, table, model.encoder_.origin_)
    figures = {figure.reference: figure for figure in found.robustness.figures}
    assert list(figures) == list(REFERENCES)
    for ours, theirs in KINDS.items():
        assert figures[ours].gcig.value == pytest.approx(expected[theirs], rel=2e-3), ours
    assert figures["mean"].gcig.value == pytest.approx(found.gcig)
    assert figures["members"].gcig.value == found.gcig_members
    assert found.gcig_members == pytest.approx(expected["members"], rel=0.35)
    assert found.gcig_members_low < expected["members"] < found.gcig_members_high
    assert found.effective_columns == pytest.approx(expected["columns"], rel=1e-3)
    assert found.reference_offset == pytest.approx(expected["reference_offset"], rel=1e-2)
    assert found.faithfulness == pytest.approx(expected["faithfulness"], abs=0.1)
    assert figures["Shapley values"].gcig.value == pytest.approx(found.gcig, rel=0.2)
    assert figures["mean, l2"].gcig.value == pytest.approx(found.gcig_l2)


def test_a_linear_model_has_the_same_values_by_shapley_values() -> None:
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(300, 4)), rng.choice(["f", "m"], 300)
    X[:, 0] += sex == "m"
    y = (X.sum(axis=1) + rng.normal(size=300) > 0).astype(int)
    model = LogisticRegression().fit(X, y)
    found = evaluate(model, X, y, sensitive_features=sex, robustness=True, n_bootstrap=50).robustness
    figures = {figure.reference: figure.gcig for figure in found.figures}
    few = evaluate(model, X, y, sensitive_features=sex, n_bootstrap=0)
    assert figures["Shapley values"].value == pytest.approx(few.gcig, rel=0.15)  # a sample of the rows
    assert all(math.isnan(figure.other.value) for figure in found.figures)


@pytest.mark.slow
def test_evaluate_and_audits_return_the_same_panel(german, tmp_path) -> None:
    data, model = german
    flipped = gcig.methods.METHODS["unconstrained"].estimator(max_epochs=3, random_state=1)
    flipped.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    settings = {"robustness": True, "other": flipped, "n_bootstrap": 30}
    found = evaluate(model, data.X, data.y, sensitive_features=data.sensitive_features, **settings)
    of_table = audit(
        model, data.X, data.y, sensitive_features=data.sensitive_features, n_shuffles=3, **settings
    )
    data.X.assign(sex=data.sensitive_features, good=data.y).to_csv(tmp_path / "rows.csv", index=False)
    of_file = audit_file(
        model,
        tmp_path / "rows.csv",
        target="good",
        sensitive="sex",
        n_shuffles=3,
        rows_at_once=300,
        in_memory_rows=0,
        **settings,
    )
    for record in (of_table.record, of_file.record):
        assert record.robustness.verdict == found.robustness.verdict
        for ours, theirs in zip(found.robustness.figures, record.robustness.figures, strict=True):
            for mine, other in ((ours.gcig, theirs.gcig), (ours.other, theirs.other)):
                assert mine.value == pytest.approx(other.value, rel=1e-4)
        assert record.robustness.verdict in record.verdict.findings
    assert "GCIG under other references" in of_table.to_markdown()
    assert found.robustness.verdict in str(found)
    assert type(found).from_json(found.to_json()) == found


def test_black_boxes_and_gradients_can_be_compared() -> None:
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(300, 3)), rng.choice(["f", "m"], 300)
    X[:, 0] += sex == "m"
    y = (X.sum(axis=1) + rng.normal(size=300) > 0).astype(int)
    trees = RandomForestClassifier(5, max_depth=3, random_state=0).fit(X, y)
    found = evaluate(
        LogisticRegression().fit(X, y),
        X,
        y,
        sensitive_features=sex,
        robustness=True,
        other=trees,
        n_bootstrap=20,
    ).robustness
    assert all(math.isfinite(figure.gcig.value + figure.other.value) for figure in found.figures)


def test_a_second_model_needs_the_panel(german) -> None:
    data, model = german
    with pytest.raises(InputError, match="robustness=True"):
        evaluate(model, data.X, data.y, sensitive_features=data.sensitive_features, other=model)


def panel(**values: float) -> dict[str, PanelFigure]:
    """A panel in which every value is certain."""
    given = {name.replace("_", " "): value for name, value in values.items()}
    return {
        kind: PanelFigure(Interval(given.get(kind, 0.1)), np.full(5, given.get(kind, 0.1)), noise=0.01)
        for kind in REFERENCES
    }


def test_conclusion_on_one_model() -> None:
    same = conclude(panel())
    assert same.agrees
    assert "does not depend" in same.verdict
    small = conclude(panel(mean=0.02))
    assert not small.agrees
    assert "but not relative to 'mean'." in small.verdict
    undefined = {kind: PanelFigure(Interval(math.nan), np.empty(0)) for kind in REFERENCES}
    assert not conclude(undefined).agrees


def test_conclusion_on_two_models() -> None:
    fairer = conclude(panel(), {kind: panel(mean=0.1)[kind] for kind in REFERENCES})
    assert fairer.agrees  # the same values: no reference prefers either model
    other = {kind: PanelFigure(Interval(0.3), np.full(5, 0.3)) for kind in REFERENCES}
    better = conclude(panel(), other)
    assert better.agrees
    assert "the model has the lower GCIG relative to all." in better.verdict
    other["medoid"] = PanelFigure(Interval(0.05), np.full(5, 0.05))
    mixed = conclude(panel(), other)
    assert not mixed.agrees
    assert "the other model has the lower GCIG relative to 'medoid'" in mixed.verdict
    other["medoid"] = other["mean"]
    other["members"] = panel()["members"]
    unsure = conclude(panel(), other)
    assert not unsure.agrees
    assert "the difference is not certain relative to 'members'" in unsure.verdict


def test_whichever_model_is_fairer_must_be_certain() -> None:
    """The interval of a difference: of paired draws, or of two intervals, and of the members drawn."""
    spread = np.array([-1.0, 1.0]) * 0.01
    first, second = (PanelFigure(Interval(value), np.full(2, value)) for value in (0.10, 0.12))
    assert (_fairer(first, second), _fairer(second, first)) == ("first", "second")
    noisy = PanelFigure(Interval(0.12), 0.12 + spread)  # a standard deviation of 0.01, times 1.96
    assert _fairer(first, noisy) == "first"
    noisy = PanelFigure(Interval(0.12), 0.12 + 1.1 * spread)
    assert _fairer(first, noisy) == "neither"
    together = [PanelFigure(each.interval, each.draws + 9 * spread) for each in (first, second)]
    assert _fairer(*together) == "first"  # what draws share does not count
    assert _fairer(first, PanelFigure(second.interval, second.draws, error=0.0101)) == "first"
    assert _fairer(first, PanelFigure(second.interval, second.draws, error=0.0103)) == "neither"
    apart = [PanelFigure(Interval(v, v - r, v + r), np.empty(0)) for v, r in ((0.1, 0.012), (0.12, 0.015))]
    assert _fairer(*apart) == "first"  # the reach is 0.0192
    wider = PanelFigure(Interval(0.12, 0.10, 0.14), np.empty(0))
    assert _fairer(apart[0], wider) == "neither"
    assert _fairer(first, PanelFigure(Interval(math.nan), second.draws)) == "neither"
    single = [PanelFigure(each.interval, np.array([each.interval.value])) for each in (apart[0], wider)]
    assert _fairer(*single) == "neither"  # one draw has no spread


@pytest.mark.parametrize(("value", "agrees"), [(0.0601, True), (0.0599, False)])
def test_gcig_is_material_from_a_twentieth_above_its_noise(value: float, agrees: bool) -> None:
    assert conclude(panel(mean=value)).agrees == agrees
    assert conclude(panel(**{"mean,_l2": 0.0})).agrees  # on another scale, and not judged
    exactly = {kind: PanelFigure(Interval(0.05), np.full(5, 0.05)) for kind in REFERENCES}
    assert "exceeds its noise by 0.05 or more" in conclude(exactly).verdict


def test_references_without_a_label_are_weighted_by_the_rows_of_the_labels() -> None:
    references = np.array([[[1.0], [2.0]], [[5.0], [6.0]]])
    found = _without_label(references, np.array([[3.0, 1.0], [1.0, 1.0]]))
    assert found[..., 0].tolist() == [[2.0, 4.0], [2.0, 4.0]]


def test_distance_of_groups_by_hand() -> None:
    """Two labels of three groups; the second label has rows of two groups, of one, or of none."""
    sums = np.zeros((1, 2, 3, 3))
    sums[0, 0] = [[2.0, 0.0, 2.0], [0.0, 3.0, 3.0], [1.0, 0.0, 1.0]]  # means (1, 0), (0, 1), (1, 0)
    alone = np.sqrt((2 + 0 + 2) / 3)  # the root mean square distance over three pairs
    assert _distance_of_groups(sums) == pytest.approx(alone)
    sums[0, 1, 0] = [4.0, 0.0, 4.0]
    assert _distance_of_groups(sums) == pytest.approx(alone)  # one group has nobody to differ from
    sums[0, 1, 1] = [0.0, 2.0, 2.0]
    assert _distance_of_groups(sums) == pytest.approx((6 * alone + 6 * np.sqrt(2)) / 12)
    assert np.isnan(_distance_of_groups(np.zeros((1, 2, 3, 3)))).all()


# --- the panel of a linear model, whose attributions are products ---------------------------------------


class Panel:
    """A linear model on a small table, with weights of the rows, and its panel."""

    def __init__(self, n_bootstrap: int = 20) -> None:
        rng = np.random.default_rng(3)
        self.groups, self.y = np.arange(46) % 2, rng.integers(0, 2, 46)
        self.X = rng.normal(size=(46, 3)) + np.outer(self.groups, [1.0, 0.0, 0.3])
        self.weights = rng.integers(1, 4, 46).astype(float)
        self.model = LogisticRegression().fit(self.X, self.y)
        adapted = adapt(self.model, self.X)
        sample = Sample.check(adapted, self.X, self.y, np.array(["f", "m"])[self.groups], None, self.weights)
        streams = RandomStreams.spawn(0)
        self.pool = MemberPool(2, streams.members)
        self.pool.add(sample.rows)
        self.baselines = sample.baselines
        self.sample, self.streams = sample, streams
        self.found = self.measure(sample.baselines, n_bootstrap)

    def measure(self, baselines: np.ndarray, n_bootstrap: int) -> dict[str, PanelFigure]:
        rows = self.sample.rows
        comparison = Comparison.prepare(self.sample.adapted, baselines, Definition(), rows, compared=(0, 1))
        return measure_panel(comparison, rows, self.pool, self.streams, n_bootstrap)

    def units(self, references: np.ndarray, norm: int = 1) -> np.ndarray:
        """Normalised attributions (groups, rows, columns), relative to references (2, groups, columns)."""
        values = self.model.coef_[0] * (self.X - references[self.y].swapaxes(0, 1))
        return values / np.maximum(np.linalg.norm(values, norm, axis=2, keepdims=True), 1e-12)

    def mean(self, values: np.ndarray) -> float:
        return float(values @ self.weights / self.weights.sum())

    def cells(self, make) -> np.ndarray:
        return np.array([[make(self.pool.members(label, group)) for group in (0, 1)] for label in (0, 1)])


def members_mean(members: np.ndarray) -> np.ndarray:
    return members.mean(axis=0)


MAKERS = {
    "mean": members_mean,
    "medoid": lambda members: members[medoid(torch.from_numpy(members))],
    "modal member": lambda members: members[modal_member(torch.from_numpy(members))],
}


@pytest.mark.parametrize("kind", [*MAKERS, "label-free"])
def test_disparity_and_noise_relative_to_one_reference_of_each_cell(kind: str) -> None:
    panel = Panel()
    make = MAKERS.get(kind, members_mean)
    sets = [
        panel.cells(lambda members, part=part: make(members[part]))
        for part in (slice(None), slice(0, None, 2), slice(1, None, 2))
    ]
    if kind == "label-free":
        sizes = np.array([[((panel.y == y) & (panel.groups == g)).sum() for g in (0, 1)] for y in (0, 1)])
        sets = [
            np.stack([(sizes[..., None] * each / sizes.sum(axis=0)[:, None]).sum(axis=0)] * 2)
            for each in sets
        ]
    whole, first, second = map(panel.units, sets)
    disparity, found = np.linalg.norm(whole[0] - whole[1], axis=1), panel.found[kind]
    weights = panel.weights * whole.any(axis=2).all(axis=0)  # a row that is a reference has no reasons
    assert found.interval.value == pytest.approx(disparity @ weights / weights.sum())
    assert found.noise == pytest.approx(panel.mean(np.linalg.norm(first - second, axis=2).mean(axis=0)))
    counts = np.random.default_rng(0).multinomial(46, np.full(46, 1 / 46), size=20)
    draws = counts @ (weights * disparity) / (counts @ weights)
    np.testing.assert_allclose(found.draws, draws)
    assert (found.interval.low, found.interval.high) == pytest.approx(
        tuple(np.quantile(draws, [0.025, 0.975]))
    )
    assert found.error == 0


def test_other_figures_of_the_panel() -> None:
    panel = Panel()
    by_l2 = panel.units(panel.baselines, 2)
    assert panel.found["mean, l2"].interval.value == pytest.approx(
        panel.mean(np.linalg.norm(by_l2[0] - by_l2[1], axis=1))
    )
    assert panel.found["mean, l2"].noise == 0
    exact, mean = panel.found["Shapley values"], panel.found["mean"]
    assert exact.interval.value == pytest.approx(mean.interval.value)  # the model is additive
    assert exact.noise == mean.noise
    np.testing.assert_allclose(exact.draws, mean.draws)
    assert panel.found["members"].error > 0
    assert len(panel.found["members"].draws) == 20
    assert all(len(each.draws) == 2 for each in Panel(n_bootstrap=0).found.values())


def test_one_stratum_of_members_has_no_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gcig.metrics.members.N_STRATA", 1)
    assert Panel().found["members"].error == 0


@pytest.mark.parametrize(("most", "defined"), [(3, True), (2, False)])
def test_shapley_values_of_more_columns_than_are_permuted_are_unknown(
    most: int, defined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gcig.metrics.robustness.MAX_PERMUTED_COLUMNS", most)
    assert math.isfinite(Panel().found["Shapley values"].interval.value) == defined


def test_groups_relative_to_one_reference_of_their_label() -> None:
    panel = Panel()
    total = weight = 0.0
    for label in (0, 1):
        own = panel.y == label
        sizes = [(own & (panel.groups == g)).sum() for g in (0, 1)]
        reference = np.average(panel.baselines[label], axis=0, weights=sizes)
        values = panel.model.coef_[0] * (panel.X - reference)
        units = values / np.abs(values).sum(axis=1, keepdims=True)
        means = [
            np.average(units[each], axis=0, weights=panel.weights[each])
            for each in (own & (panel.groups == g) for g in (0, 1))
        ]
        total += np.linalg.norm(means[0] - means[1]) * panel.weights[own].sum()
        weight += panel.weights[own].sum()
    assert panel.found["common"].interval.value == pytest.approx(total / weight)
    assert panel.found["common"].noise == panel.found["common"].error == 0


def test_a_label_without_references_has_no_panel() -> None:
    panel = Panel()
    unknown = panel.baselines.copy()
    unknown[1, 0] = np.nan
    found = panel.measure(unknown, 20)
    for kind in ("mean", "label-free", "common", "Shapley values", "mean, l2"):
        assert math.isnan(found[kind].interval.value), kind
        assert found[kind].draws.size == 0, kind


def test_verdicts_name_what_they_are_about() -> None:
    small = conclude(panel(mean=0.02, medoid=0.02, common=0.02))
    assert "but not relative to 'mean', 'medoid' and 'common'." in small.verdict
    certain = {kind: PanelFigure(Interval(0.0), np.zeros(5)) for kind in REFERENCES}
    assert "under each of them GCIG is within 0.05 of its noise." in conclude(certain).verdict
    assert "under each of them GCIG exceeds its noise by 0.05 or more." in conclude(panel()).verdict
    undefined = {kind: PanelFigure(Interval(math.nan), np.empty(0)) for kind in REFERENCES}
    assert conclude(undefined).verdict == "GCIG is undefined under every reference."
    same = conclude(panel(), panel())
    assert same.verdict.startswith(
        "The conclusion does not depend on the reference: the difference is not certain"
    )
    one = conclude(panel(), {**panel(), "medoid": PanelFigure(Interval(0.3), np.full(5, 0.3))})
    assert "the model has the lower GCIG relative to 'medoid', and the difference is not" in one.verdict
