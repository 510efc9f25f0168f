"""Progress of an audit."""

from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from gcig.auditing import audit, findings, sources

QUICK = {"n_bootstrap": 20, "n_shuffles": 5}


class Watcher:
    """Steps in their order, with their total and what was counted."""

    def __init__(self):
        self.totals, self.counted = {}, {}

    @contextmanager
    def __call__(self, total, step, *, shown):
        assert shown
        assert step not in self.totals
        self.totals[step], self.counted[step] = total, []
        yield self.counted[step].append


def watch(monkeypatch):
    watcher = Watcher()
    for module in (findings, sources):
        monkeypatch.setattr(module, "progress", watcher)
    return watcher


def rows(n=300, columns=9):
    rng = np.random.default_rng(0)
    sex = rng.choice(["f", "m"], n)
    X = rng.normal(size=(n, columns)) + np.outer(sex == "m", [1] + [0] * (columns - 1))
    return X, (X[:, :2].sum(axis=1) + rng.normal(size=n) > 0.5).astype(int), sex


@pytest.mark.parametrize("model", [DecisionTreeClassifier(max_depth=4), LogisticRegression()])
@pytest.mark.parametrize("limit", [None, 120])
@pytest.mark.parametrize("given", [False, True])
def test_every_row_of_every_step_is_counted(monkeypatch, model, limit, given):
    X, y, sex = rows()
    watcher = watch(monkeypatch)
    audit(
        model.fit(X, y),
        X,
        y,
        sensitive_features=sex,
        reference=(X[:200], y[:200], sex[:200]) if given else None,
        max_rows_explained=limit,
        progress=True,
        **QUICK,
    )
    passes = {"baselines": 300, **({"reference": 200} if given else {})}
    explained = {"attributions": 300} if limit is None else {"decisions": 300, "attributions": 120}
    assert list(watcher.totals) == [*passes, *explained, "chance"]
    assert {**watcher.totals, **passes, **explained} == watcher.totals
    for step, total in watcher.totals.items():
        assert sum(watcher.counted[step]) == pytest.approx(total), step


def test_a_slow_explanation_is_counted_while_it_lasts(monkeypatch):
    X, y, sex = rows()
    watcher = watch(monkeypatch)
    model = DecisionTreeClassifier(max_depth=4).fit(X, y)
    found = audit(model, X, y, sensitive_features=sex, progress=True, **QUICK)
    for step in ("attributions", "chance"):
        assert max(watcher.counted[step]) < watcher.totals[step] / 4, step
    monkeypatch.undo()
    unwatched = audit(model, X, y, sensitive_features=sex, **QUICK)
    assert found.record.procedural == unwatched.record.procedural
