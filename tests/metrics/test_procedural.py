"""GCIG against closed forms in NumPy: a linear model has attributions (x - b) w."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from gcig.adapters import GradientExplainer
from gcig.core.definition import Definition
from gcig.metrics import procedural
from gcig.metrics.procedural import Explained, measure

ORIGIN = np.array([0, 1, 1, 1, 2])


def linear(weights: np.ndarray) -> nn.Module:
    module = nn.Linear(len(weights), 1, dtype=torch.float64)
    with torch.no_grad():
        module.weight.copy_(torch.tensor(weights)[None])
    return nn.Sequential(module, nn.Flatten(0))


@pytest.fixture
def explained() -> Explained:
    rng = np.random.default_rng(0)
    return Explained(
        explainer=GradientExplainer(linear(rng.normal(size=5))),
        inputs=rng.normal(size=(60, 5)),
        labels=rng.integers(0, 2, 60),
        baselines=rng.normal(size=(2, 3, 5)),
        origin=ORIGIN,
        n_columns=3,
    )


def changed(explained: Explained, **changes: object) -> Explained:
    return Explained(**{**vars(explained), **changes})


def attributions_by_hand(explained: Explained, columns: str) -> np.ndarray:
    """(groups, n, columns)."""
    weights = explained.explainer.module[0].weight.detach().numpy()[0]
    found = (explained.inputs - explained.baselines[explained.labels].swapaxes(0, 1)) * weights
    return found if columns == "raw" else found @ (ORIGIN[:, None] == np.arange(3))


def disparity_by_hand(attributions: np.ndarray, norm: str) -> np.ndarray:
    """Root mean square distance over pairs of groups, one pair at a time."""
    unit = attributions / np.linalg.norm(attributions, 1 if norm == "l1" else 2, axis=2, keepdims=True)
    squares = [((unit[g] - unit[h]) ** 2).sum(axis=1) for g, h in itertools.combinations(range(len(unit)), 2)]
    return np.sqrt(np.mean(squares, axis=0))


@pytest.mark.parametrize("columns", ["raw", "original"])
@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_linear_model_in_every_variant(explained: Explained, columns: str, norm: str) -> None:
    found = measure(explained, Definition())
    expected = disparity_by_hand(attributions_by_hand(explained, columns), norm)
    np.testing.assert_allclose(found.rows[columns, norm], expected, rtol=1e-9)
    assert found.defined[columns].all()
    assert found.completeness < 1e-12


def test_linear_model_columns(explained: Explained) -> None:
    found = measure(explained, Definition(norm="l2"))
    for columns, n_columns in (("raw", 5), ("original", 3)):
        attributions = attributions_by_hand(explained, columns)
        unit = attributions / np.linalg.norm(attributions, axis=2, keepdims=True)
        expected = np.sqrt(2 * 3 / 2 * unit.var(axis=0)).mean(axis=0)
        np.testing.assert_allclose(found.columns[columns], expected, rtol=1e-9)
        assert found.columns[columns].shape == (n_columns,)


def test_linear_model_effective_columns(explained: Explained) -> None:
    attributions = attributions_by_hand(explained, "raw")
    share = (np.abs(attributions) / np.abs(attributions).sum(axis=2, keepdims=True)).mean(axis=(0, 1))
    expected = math.exp(-(share * np.log(share)).sum())
    assert measure(explained, Definition()).effective_columns == pytest.approx(expected)


def test_weights_enter_columns_and_shares(explained: Explained) -> None:
    weights = np.random.default_rng(1).integers(0, 3, 60).astype(float)
    repeated = np.repeat(np.arange(60), weights.astype(int))
    found = measure(changed(explained, weights=weights), Definition())
    plain = measure(
        changed(explained, inputs=explained.inputs[repeated], labels=explained.labels[repeated]), Definition()
    )
    np.testing.assert_allclose(found.columns["raw"], plain.columns["raw"], rtol=1e-9)
    assert found.effective_columns == pytest.approx(plain.effective_columns)


def network(p: int = 5) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(p, 8), nn.SiLU(), nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 1), nn.Flatten(0)
    )


def test_chunks_do_not_change_the_result(explained: Explained, monkeypatch: pytest.MonkeyPatch) -> None:
    smooth = changed(explained, explainer=GradientExplainer(network().double()))
    whole = measure(smooth, Definition())
    monkeypatch.setattr(procedural, "CHUNK_BYTES", 7 * 3 * 5 * 8)
    parts = measure(smooth, Definition())
    for variant, values in whole.rows.items():
        np.testing.assert_allclose(parts.rows[variant], values, rtol=1e-9)
    np.testing.assert_allclose(parts.columns["raw"], whole.columns["raw"], rtol=1e-9)
    assert parts.effective_columns == pytest.approx(whole.effective_columns)
    assert parts.completeness == pytest.approx(whole.completeness, rel=1e-6)
    assert parts.definition == whole.definition
    assert "auto" not in (whole.definition.rule, whole.definition.n_steps)


def test_rule_and_steps_are_taken_as_given(explained: Explained) -> None:
    smooth = changed(explained, explainer=GradientExplainer(network().double()))
    found = measure(smooth, Definition(rule="right", n_steps=4))
    assert (found.definition.rule, found.definition.n_steps) == ("right", 4)
    assert found.completeness > 100 * measure(smooth, Definition()).completeness


def test_rows_without_reasons_are_undefined(explained: Explained) -> None:
    """A row that is one of its baselines has no attributions under that group."""
    inputs = explained.inputs.copy()
    inputs[:4] = explained.baselines[explained.labels[:4], 0]
    found = measure(changed(explained, inputs=inputs), Definition())
    np.testing.assert_array_equal(found.defined["raw"], np.arange(60) >= 4)
    rest = measure(changed(explained, inputs=inputs[4:], labels=explained.labels[4:]), Definition())
    np.testing.assert_allclose(found.columns["raw"], rest.columns["raw"], rtol=1e-9)
    assert found.effective_columns == pytest.approx(rest.effective_columns)


def test_undefined_is_judged_by_the_median_over_all_chunks(
    explained: Explained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk of nearly vanishing rows alone would call them defined."""
    labels = np.zeros(60, dtype=int)
    inputs = explained.inputs.copy()
    baselines = explained.baselines.copy()
    baselines[0] = np.random.default_rng(2).normal(size=(3, 5)) * 1e-14
    inputs[:8] *= 1e-12
    tiny = changed(explained, inputs=inputs, labels=labels, baselines=baselines)
    whole = measure(tiny, Definition())
    monkeypatch.setattr(procedural, "CHUNK_BYTES", 8 * 3 * 5 * 8)
    parts = measure(tiny, Definition())
    np.testing.assert_array_equal(whole.defined["raw"], np.arange(60) >= 8)
    np.testing.assert_array_equal(parts.defined["raw"], whole.defined["raw"])
    np.testing.assert_allclose(parts.columns["raw"], whole.columns["raw"], rtol=1e-9)


def test_a_model_without_reasons_is_undefined_everywhere(explained: Explained) -> None:
    found = measure(changed(explained, explainer=GradientExplainer(linear(np.zeros(5)))), Definition())
    assert not found.defined["raw"].any()
    assert math.isnan(found.effective_columns)
    assert math.isnan(found.completeness)
    assert np.isnan(found.columns["raw"]).all()


def test_missing_baseline_leaves_its_label_nan(explained: Explained) -> None:
    baselines = explained.baselines.copy()
    baselines[1, 2] = np.nan
    found = measure(changed(explained, baselines=baselines), Definition())
    np.testing.assert_array_equal(np.isnan(found.rows["raw", "l1"]), explained.labels == 1)
    everything = measure(changed(explained, baselines=np.full_like(baselines, np.nan)), Definition())
    assert np.isnan(everything.rows["raw", "l1"]).all()
    assert math.isnan(everything.effective_columns)


def test_columns_that_were_not_encoded_are_their_own_originals(explained: Explained) -> None:
    found = measure(changed(explained, origin=np.arange(5), n_columns=5), Definition())
    np.testing.assert_array_equal(found.rows["original", "l2"], found.rows["raw", "l2"])
    np.testing.assert_array_equal(found.columns["original"], found.columns["raw"])


def test_module_is_explained_in_evaluation_mode_and_left_in_its_own(explained: Explained) -> None:
    module = nn.Sequential(
        nn.Linear(5, 8), nn.Dropout(0.5), nn.SiLU(), nn.Linear(8, 1), nn.Flatten(0)
    ).double()
    module.train()
    first, second = (
        measure(changed(explained, explainer=GradientExplainer(module)), Definition()) for _ in range(2)
    )
    np.testing.assert_array_equal(first.rows["raw", "l1"], second.rows["raw", "l1"])
    assert all(part.training for part in module.modules())
