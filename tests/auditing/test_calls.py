"""The number of rows that an audit lets a model score: said before it starts, and limited."""

import numpy as np
import pandas as pd
import pytest

import gcig
from gcig.auditing import audit_file

RNG = np.random.default_rng(0)
N = 300
SEX = np.where(np.arange(N) % 2, "f", "m")
NUMBERS = pd.DataFrame(RNG.normal(size=(N, 10)), columns=list("abcdefghij"))
NUMBERS["a"] += 0.8 * (SEX == "m")
Y = (NUMBERS["a"] - NUMBERS["b"] + RNG.normal(size=N) > 0.4).astype(int)
MIXED = NUMBERS[["a", "b"]].assign(job=RNG.choice(["x", "y", "z"], N), sex=SEX)
FEW = {"sensitive_features": SEX, "max_rows_explained": 30, "n_shuffles": 19, "n_bootstrap": 20}


class Counted:
    """A function that counts the rows that it scores."""

    def __init__(self) -> None:
        self.rows = 0

    def __call__(self, rows):
        self.rows += len(rows)
        return 1 / (1 + np.exp(-(rows["a"] - rows["b"]).to_numpy()))


def announced(capsys) -> int:
    line = next(each for each in capsys.readouterr().err.splitlines() if "at most" in each)
    return int(line.partition("at most ")[2].partition(" rows")[0].replace(",", ""))


@pytest.mark.parametrize(
    ("table", "options"),
    [
        (NUMBERS, {}),
        (MIXED, {"include_rows": True, "include_protected": True}),
        pytest.param(MIXED, {"robustness": True}, marks=pytest.mark.slow),
        pytest.param(NUMBERS, {"robustness": True, "include_rows": True}, marks=pytest.mark.slow),
    ],
    ids=["numbers", "rows", "robustness", "all"],
)
def test_no_more_rows_are_scored_than_announced(table, options, capsys) -> None:
    model = Counted()
    gcig.audit(model, table, Y, **FEW, **options, progress=True)
    most = announced(capsys)
    assert 0.2 * most < model.rows <= most


def test_an_audit_that_would_score_too_many_rows_does_not_start() -> None:
    model = Counted()
    with pytest.raises(gcig.InputError, match=r"max_calls is 1,000, but .* up to [\d,]+ rows: decisions 300"):
        gcig.audit(model, NUMBERS, Y, **FEW, max_calls=1000)
    assert model.rows == 0
    with pytest.raises(gcig.InputError, match="max_calls must be"):
        gcig.audit(model, NUMBERS, Y, **FEW, max_calls=0)


def test_fewer_explained_rows_and_shuffles_take_fewer_calls(capsys) -> None:
    def most(**options) -> int:
        with pytest.raises(gcig.InputError) as error:
            gcig.audit(Counted(), NUMBERS, Y, sensitive_features=SEX, max_calls=1, **options)
        return int(str(error.value).partition("up to ")[2].partition(" rows")[0].replace(",", ""))

    assert most(max_rows_explained=10, n_shuffles=19) < most(n_shuffles=19) < most()


def test_models_with_gradients_have_no_limit(tmp_path) -> None:
    data = gcig.load_dataset("german", include_sensitive=False)
    X = data.X[["duration", "age"]]
    path = tmp_path / "rows.csv"
    X.assign(sex=data.sensitive_features, good=data.y).to_csv(path, index=False)
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(X, data.y)
    found = audit_file(
        model, path, target="good", sensitive="sex", n_bootstrap=20, n_shuffles=19, max_calls=1
    )
    assert found.record.subject.n_rows == 1000
