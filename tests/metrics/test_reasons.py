"""Reasons of rows, and their sums."""

import itertools
import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from gcig.adapters import GradientExplainer, Reasons
from gcig.core.definition import Definition
from gcig.metrics import reasons
from gcig.metrics.reasons import Comparison, ReasonSums, RowReasons, combine_labels, label_means
from gcig.metrics.sample import EncodedRows

ORIGIN = np.array([0, 1, 1, 1, 2])
RAW = Definition(columns="raw")
COMPARED = (0, 1, 2)


@dataclass(frozen=True)
class Case:
    """A module, its rows and its references."""

    module: nn.Module
    inputs: np.ndarray
    labels: np.ndarray
    baselines: np.ndarray
    origin: np.ndarray
    weights: np.ndarray | None = None


def measure(case: Case, definition: Definition) -> ReasonSums:
    names = tuple(map(str, range(case.origin.max() + 1)))
    adapted = SimpleNamespace(
        explainer=GradientExplainer(case.module),
        columns=tuple(map(str, case.origin)),
        original_names=names,
        origin=case.origin,
        blocks=None,
        input_origin=case.origin,
    )
    n = len(case.inputs)
    rows = EncodedRows(case.inputs, case.labels, np.arange(n) % 3, np.arange(n), case.weights)
    comparison = Comparison.prepare(adapted, case.baselines, definition, rows, compared=COMPARED)
    return ReasonSums.of(comparison, rows, n_groups=3, rng=np.random.default_rng(0))


def contributions(sums: ReasonSums) -> np.ndarray:
    return sums.combine(sums.by_column.sum(axis=0))


def linear(weights: np.ndarray) -> nn.Module:
    module = nn.Linear(len(weights), 1, dtype=torch.float64)
    with torch.no_grad():
        module.weight.copy_(torch.tensor(weights)[None])
    return nn.Sequential(module, nn.Flatten(0))


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Linear(5, 8), nn.SiLU(), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 1), nn.Flatten(0))
    return nn.Sequential(*layers).double()


@pytest.fixture
def case() -> Case:
    rng = np.random.default_rng(0)
    return Case(
        module=linear(rng.normal(size=5)),
        inputs=rng.normal(size=(60, 5)),
        labels=rng.integers(0, 2, 60),
        baselines=rng.normal(size=(2, 3, 5)),
        origin=ORIGIN,
    )


def attributions_by_hand(case: Case, columns: str) -> np.ndarray:
    """(groups, n, columns)."""
    weights = case.module[0].weight.detach().numpy()[0]
    found = (case.inputs - case.baselines[case.labels].swapaxes(0, 1)) * weights
    return found if columns == "raw" else found @ (ORIGIN[:, None] == np.arange(3))


def disparity_by_hand(attributions: np.ndarray, norm: str) -> np.ndarray:
    """Root mean square distance over pairs of groups, one pair at a time."""
    unit = attributions / np.linalg.norm(attributions, 1 if norm == "l1" else 2, axis=2, keepdims=True)
    squares = [((unit[g] - unit[h]) ** 2).sum(axis=1) for g, h in itertools.combinations(range(len(unit)), 2)]
    return np.sqrt(np.mean(squares, axis=0))


@pytest.mark.parametrize("columns", ["raw", "original"])
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_linear_model_in_every_variant(case: Case, columns: str, norm: str) -> None:
    expected = disparity_by_hand(attributions_by_hand(case, columns), norm).mean()
    found = measure(case, Definition(columns=columns, norm=norm))
    assert found.gcig == pytest.approx(expected)
    assert found.completeness < 1e-12
    assert found.undefined_rows == 0
    if (columns, norm) != ("raw", "l2"):
        assert measure(case, Definition()).variant(columns, norm) == pytest.approx(expected)


@pytest.mark.parametrize("columns", ["raw", "original"])
@pytest.mark.parametrize("label_weights", ["empirical", "equal", "sum"])
def test_contributions_of_columns_add_up_to_gcig(case: Case, columns: str, label_weights: str) -> None:
    found = measure(case, Definition(columns=columns, label_weights=label_weights))
    assert contributions(found).sum() == pytest.approx(found.gcig)
    assert (contributions(found) >= 0).all()


def test_contributions_by_hand(case: Case) -> None:
    attributions = attributions_by_hand(case, "raw")
    unit = attributions / np.abs(attributions).sum(axis=2, keepdims=True)
    squares = 2 * 3 / 2 * unit.var(axis=0)
    expected = (squares / np.sqrt(squares.sum(axis=1, keepdims=True))).mean(axis=0)
    np.testing.assert_allclose(contributions(measure(case, RAW)), expected, rtol=1e-9)


def test_linear_model_effective_columns(case: Case) -> None:
    for columns in ("raw", "original"):
        attributions = attributions_by_hand(case, columns)
        share = (np.abs(attributions) / np.abs(attributions).sum(axis=2, keepdims=True)).mean(axis=(0, 1))
        expected = math.exp(-(share * np.log(share)).sum())
        assert measure(case, Definition(columns=columns)).effective_columns == pytest.approx(expected)


def test_weights_are_repeated_rows(case: Case) -> None:
    weights = np.random.default_rng(1).integers(0, 3, 60).astype(float)
    repeated = np.repeat(np.arange(60), weights.astype(int))
    found = measure(replace(case, weights=weights), RAW)
    plain = measure(replace(case, inputs=case.inputs[repeated], labels=case.labels[repeated]), RAW)
    np.testing.assert_allclose(contributions(found), contributions(plain), rtol=1e-9)
    assert found.gcig == pytest.approx(plain.gcig)
    assert found.effective_columns == pytest.approx(plain.effective_columns)


def test_chunks_do_not_change_the_result(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    smooth = replace(case, module=network())
    whole = measure(smooth, RAW)
    monkeypatch.setattr(reasons, "_BYTES_AT_ONCE", 7 * 3 * 5 * 8)
    parts = measure(smooth, RAW)
    assert parts.gcig == pytest.approx(whole.gcig)
    np.testing.assert_allclose(contributions(parts), contributions(whole), rtol=1e-9)
    assert parts.effective_columns == pytest.approx(whole.effective_columns)
    assert parts.completeness == pytest.approx(whole.completeness, rel=1e-6)
    used = whole.comparison.definition
    assert parts.comparison.definition == used
    assert used.n_steps != "auto"


@pytest.mark.parametrize(
    ("p", "columns", "most", "sizes"),
    [
        (40_000, 3, 99, [26, 26, 8, 20]),  # 16 MiB hold 26 rows of 40,000 numbers under two groups
        (3, 40_000, 99, [26, 26, 8, 20]),
        (40_000, 3, 25, [25, 25, 10, 20]),
        (2**22, 3, 99, [1] * 80),
    ],
)
def test_chunks_fit_into_sixteen_megabytes(p: int, columns: int, most: int, sizes: list[int]) -> None:
    comparison = SimpleNamespace(
        baselines=np.broadcast_to(0.0, (2, 2, p)),
        adapted=SimpleNamespace(columns=range(columns)),
        max_chunk=most,
        has_references=lambda label: label == 0,
        explain=lambda rows, label, _: (len(rows), label),
    )
    rows = EncodedRows(np.zeros((80, 1)), np.arange(80) // 60, np.zeros(80), np.arange(80), None)
    found = list(reasons.Comparison.explain_all(comparison, rows))
    assert [len(part) for part, _, _ in found] == sizes
    assert all(of == ((len(part), 0) if label == 0 else None) for part, of, label in found)
    assert np.concatenate([part.positions for part, _, _ in found]).tolist() == list(range(80))


@pytest.mark.parametrize("centres", [False, True])
@pytest.mark.parametrize("kinds", [("original",), ("encoded", "raw")])
def test_slopes_are_computed_only_if_they_are_centred(centres: bool, kinds: tuple[str, ...]) -> None:
    asked = []

    def attribute(rows, references, _, *, advance, slopes):
        asked.append(slopes)
        ones = torch.ones(len(references), *rows.shape)
        return SimpleNamespace(values=ones, slopes=ones if slopes else None)

    comparison = SimpleNamespace(
        compared_columns=SimpleNamespace(centres=centres, sum=torch.clone, centre=lambda each: 2 * each),
        adapted=SimpleNamespace(explainer=SimpleNamespace(attribute=attribute)),
        definition=Definition(),
    )
    rows, references = np.array([[3.0, 5.0]]), np.array([[1.0, 1.0]])
    _, found = reasons.Comparison.attribute(comparison, rows, references, kinds)
    assert asked == [centres and "encoded" in kinds]
    assert tuple(found) == kinds
    if "encoded" in kinds:
        assert found["encoded"].tolist() == ([[[4.0, 8.0]]] if centres else [[[1.0, 1.0]]])
        assert found["raw"].tolist() == [[[1.0, 1.0]]]


def test_disparities_without_each_replicate() -> None:
    replicates = torch.rand(4, 2, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    comparison = SimpleNamespace(definition=Definition(norm="l2"), select=lambda values: values)
    found = reasons.Comparison._without_replicates(comparison, replicates)
    for i in range(4):
        mean = np.delete(replicates.numpy(), i, axis=0).mean(axis=0)
        units = mean / np.linalg.norm(mean, axis=2, keepdims=True)
        np.testing.assert_allclose(found[i], np.linalg.norm(units[0] - units[1], axis=1))
    assert reasons.Comparison._without_replicates(comparison, None) is None


def test_rule_and_steps_are_taken_as_given(case: Case) -> None:
    smooth = replace(case, module=network())
    found = measure(smooth, Definition(rule="right", n_steps=4))
    assert (found.comparison.definition.rule, found.comparison.definition.n_steps) == ("right", 4)
    assert found.completeness > 10 * measure(smooth, Definition()).completeness


def test_rows_without_reasons_are_undefined(case: Case) -> None:
    """A row that equals one of its references has no attributions under that group."""
    inputs = case.inputs.copy()
    inputs[:4] = case.baselines[case.labels[:4], 0]
    found = measure(replace(case, inputs=inputs), RAW)
    assert found.undefined_rows == 4
    rest = measure(replace(case, inputs=inputs[4:], labels=case.labels[4:]), RAW)
    assert found.gcig == pytest.approx(rest.gcig)
    assert found.effective_columns == pytest.approx(rest.effective_columns)


def test_a_chunk_of_vanishing_rows_is_undefined(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """The median over the probe decides, not that of the chunk."""
    inputs, baselines = case.inputs.copy(), case.baselines.copy()
    baselines[0] = np.random.default_rng(2).normal(size=(3, 5)) * 1e-14
    inputs[:8] *= 1e-12
    tiny = replace(case, inputs=inputs, labels=np.zeros(60, dtype=int), baselines=baselines)
    whole = measure(tiny, RAW)
    monkeypatch.setattr(reasons, "_BYTES_AT_ONCE", 8 * 3 * 5 * 8)
    assert measure(tiny, RAW).undefined_rows == whole.undefined_rows == 8


def test_a_model_without_reasons_is_undefined_everywhere(case: Case) -> None:
    found = measure(replace(case, module=linear(np.zeros(5))), RAW)
    assert found.undefined_rows == 60
    for value in (found.gcig, found.effective_columns, found.completeness, *contributions(found)):
        assert math.isnan(value)


def test_missing_reference_leaves_its_label_nan(case: Case) -> None:
    baselines = case.baselines.copy()
    baselines[1, 2] = np.nan
    found = measure(replace(case, baselines=baselines), RAW)
    means = label_means(found.total.sum(axis=0))
    assert np.isnan(means).tolist() == [False, True]
    assert np.isnan([found.gcig, found.variant("raw", "l2"), *contributions(found)]).all()
    nothing = measure(replace(case, baselines=np.full_like(baselines, np.nan)), RAW)
    assert math.isnan(nothing.gcig)
    assert math.isnan(nothing.effective_columns)


def test_columns_that_were_not_encoded_are_their_own_originals(case: Case) -> None:
    found = measure(replace(case, origin=np.arange(5)), Definition())
    assert found.variant("original", "l1") == found.variant("raw", "l1") == found.gcig


def test_module_is_explained_in_evaluation_mode_and_left_in_its_own(case: Case) -> None:
    layers = (nn.Linear(5, 8), nn.Dropout(0.5), nn.SiLU(), nn.Linear(8, 1), nn.Flatten(0))
    module = nn.Sequential(*layers).double()
    module.train()
    first, second = (measure(replace(case, module=module), Definition()).gcig for _ in range(2))
    assert first == second
    assert all(part.training for part in module.modules())


@pytest.mark.parametrize("how", ["empirical", "equal", "sum"])
def test_no_defined_row_is_nan_not_zero(how: str) -> None:
    assert np.isnan(combine_labels(np.zeros((2, 2)), how))
    assert np.isnan(combine_labels(np.array([[np.nan, 3.0], [1.0, 1.0]]), how))


def empty_sums(**definition: str) -> ReasonSums:
    comparison = SimpleNamespace(
        baselines=np.zeros((2, 2, 3)),
        columns=("a", "b", "c"),
        compared_columns=SimpleNamespace(names=("a", "b", "c"), encodes=True),
        definition=Definition(**definition),
    )
    return ReasonSums(comparison, n_rows=4, n_groups=2, rng=np.random.default_rng(0))


def test_standard_error_is_that_of_the_jackknife() -> None:
    sums = empty_sums(label_weights="equal")
    assert math.isnan(sums.standard_error)
    without = np.array([[0.2, 0.5], [0.4, 0.1], [0.6, 0.3]])  # the label means without each of three parts
    weights = np.array([4.0, 2.0])
    sums._jackknife = np.stack([without * weights, np.tile(weights, (3, 1))], axis=-1)
    values = without.mean(axis=1)
    assert sums.standard_error == pytest.approx(math.sqrt(2 / 3 * ((values - values.mean()) ** 2).sum()))


def test_sums_of_nothing_are_undefined() -> None:
    sums = empty_sums()
    for name in ("gcig", "noise", "completeness", "effective_columns"):
        assert math.isnan(getattr(sums, name)), name
    assert math.isnan(sums.variant("encoded", "l1"))
    assert (sums.undefined_rows, sums.n_explained, sums.clipped) == (0, 0, 0.0)


def test_an_estimate_below_zero_counts_as_zero() -> None:
    sums = empty_sums()
    sums.total[0] = [[-0.3, 1.0], [0.1, 1.0]]
    assert sums.gcig == 0
    sums.total[1] = [[0.4, 1.0], [0.0, 0.0]]
    assert sums.gcig == pytest.approx(0.2 / 3)


def test_a_label_without_rows_has_no_mean() -> None:
    sums = np.array([[[3.0, 2.0], [0.0, 0.0]]])
    np.testing.assert_array_equal(label_means(sums), [[1.5, np.nan]])
    assert combine_labels(sums, "empirical").tolist() == [1.5]
    assert np.isnan(combine_labels(sums, "equal")).all()


# --- sums of explained rows, against loops over the rows ------------------------------------------------

RNG = np.random.default_rng(0)
LABELS, GROUPS = np.array([0, 1, 0, 1, 1, 0, 0]), np.array([0, 0, 1, 2, 1, 1, 0])
WEIGHTS = np.array([1.0, 2.0, 0.5, 3.0, 1.0, 4.0, 2.0])
DEFINED = np.array([True, True, False, True, True, True, True])
VALUES = {
    name: RNG.random(shape)
    for name, shape in {
        "disparity": 7,
        "contribution": (7, 3),
        "normalised": (2, 7, 3),
        "shares": (7, 3),
        "original_shares": (7, 3),
        "pairs": (7, 2, 2),
        "leave_one_out": (4, 7),
        "noise": 7,
        "l2": 7,
        "values": (2, 7, 3),
        "residual": (2, 7),
    }.items()
}
VALUES["values"] -= 0.5  # attributions have both signs
L2_DEFINED = np.array([True, False, True, True, True, True, True])


def summed(label_weights: str = "equal") -> ReasonSums:
    comparison = empty_sums(label_weights=label_weights).comparison
    sums = ReasonSums(comparison, n_rows=7, n_groups=3, rng=np.random.default_rng(0))
    for label, clipped in ((0, 0.25), (1, 0.5)):
        own = np.flatnonzero(label == LABELS)
        rows = EncodedRows(np.zeros((len(own), 3)), LABELS[own], GROUPS[own], own, WEIGHTS[own])
        values = {name: np.moveaxis(each, each.shape.index(7), 0)[own] for name, each in VALUES.items()}
        values = {name: np.moveaxis(each, 0, VALUES[name].shape.index(7)) for name, each in values.items()}
        values["disparity"] = np.where(DEFINED[own], values["disparity"], np.nan)
        reasons = Reasons(torch.tensor(values["values"]), torch.tensor(values["residual"]), clipped=clipped)
        found = RowReasons(
            **{
                name: values[name] for name in ("values", "disparity", "contribution", "normalised", "shares")
            },
            **{name: values[name] for name in ("original_shares", "pairs", "leave_one_out")},
            noise=np.where(DEFINED[own], values["noise"], np.nan),
            defined=DEFINED[own],
            variants={("original", "l2"): (np.where(L2_DEFINED[own], values["l2"], np.nan), L2_DEFINED[own])},
            reasons=reasons,
        )
        sums.add(rows, found, label)
    return sums


def mean_of(values: np.ndarray, chosen: np.ndarray = DEFINED) -> float:
    """The mean of the two labels' weighted means."""
    parts = [chosen & (label == LABELS) for label in (0, 1)]
    return float(np.mean([np.average(values[part], weights=WEIGHTS[part]) for part in parts]))


def test_sums_are_means_of_the_defined_rows() -> None:
    sums, weights = summed(), WEIGHTS * DEFINED
    assert sums.gcig == pytest.approx(mean_of(VALUES["disparity"]))
    assert sums.variant("original", "l2") == pytest.approx(mean_of(VALUES["l2"], L2_DEFINED))
    assert sums.variant("original", "l1") == sums.gcig
    assert math.isnan(sums.variant("raw", "l1"))
    assert sums.noise == pytest.approx(mean_of(VALUES["noise"]))
    assert (sums.undefined_rows, sums.n_explained) == (1, 7)
    assert sums.clipped == pytest.approx(4 * 0.25 + 3 * 0.5)
    differences = np.abs(VALUES["values"].sum(axis=2))
    assert sums.completeness == pytest.approx(VALUES["residual"].sum() / differences.sum())
    shares = weights @ VALUES["shares"] / (weights @ VALUES["shares"]).sum()
    assert sums.effective_columns == pytest.approx(math.exp(-(shares * np.log(shares)).sum()))
    np.testing.assert_allclose(sums.original_shares, weights @ VALUES["original_shares"])
    for label in (0, 1):
        own = weights * (label == LABELS)
        np.testing.assert_allclose(sums.profile[label], np.einsum("n,gnc->gc", own, VALUES["normalised"]))
    values = np.array([mean_of(each) for each in VALUES["leave_one_out"]])
    assert sums.standard_error == pytest.approx(math.sqrt(3 / 4 * ((values - values.mean()) ** 2).sum()))


def test_sums_by_group_column_and_pair() -> None:
    sums = summed("empirical")
    for group in range(3):
        own = DEFINED & (group == GROUPS)
        expected = np.average(VALUES["disparity"][own], weights=WEIGHTS[own])
        assert sums.combine(sums.by_group.sum(axis=0))[group] == pytest.approx(expected)
    weights = WEIGHTS * DEFINED / (WEIGHTS @ DEFINED)
    np.testing.assert_allclose(sums.combine(sums.by_column.sum(axis=0)), weights @ VALUES["contribution"])
    pairs = np.einsum("n,ngh->gh", weights, VALUES["pairs"])
    np.testing.assert_allclose(sums.combine(sums.by_pair.sum(axis=0)), pairs)
    np.testing.assert_allclose(sums.total.sum(axis=(0, 1)), sums.by_group.sum(axis=(0, 1, 2)))
    assert sums.total.shape[0] == 7  # every row is its own block
    assert ((sums.total[..., 1] > 0).sum(axis=(0, 1)), (sums.total[..., 1] > 0).sum()) == (6, 6)


def test_rows_that_cannot_be_explained_make_the_figures_undefined() -> None:
    sums = ReasonSums(empty_sums().comparison, n_rows=2, n_groups=2, rng=np.random.default_rng(0))
    rows = EncodedRows(np.zeros((2, 3)), np.ones(2, dtype=int), np.array([0, 1]), np.arange(2), None)
    sums.add(rows, None, 1)
    assert math.isnan(sums.gcig)
    assert math.isnan(sums.variant("original", "l2"))
    assert np.isnan(sums._columns[:, 1]).all()
    assert np.isnan(sums._pairs[:, 1]).all()
    assert not sums._columns[:, 0].any()
    assert sums.n_explained == sums.undefined_rows == 0
