"""Fault 43: a model that has collapsed, or that decides everyone alike, at a gate."""

import numpy as np
import pandas as pd
import pytest

from example_tables import ROLE_FLAGS
from gcig.auditing import AuditResult


def unrelated(path, n, seed):
    """Write a table whose label has nothing to do with its columns."""
    rng = np.random.default_rng(seed)
    columns = {"income": rng.normal(size=n), "debt": rng.normal(size=n)}
    sex, approved = np.array(["f", "m"])[np.arange(n) % 2], np.where(rng.random(n) < 0.5, "yes", "no")
    pd.DataFrame({**columns, "sex": sex, "approved": approved}).to_csv(path, index=False)
    return path


def test_fault_43_a_collapsed_model_does_not_pass(shell, tmp_path):
    out = ["--out", tmp_path / "m", "--method", "unconstrained", "--epochs", "2", "--quiet"]
    code, _, err = shell("train", unrelated(tmp_path / "train.csv", 400, 0), *ROLE_FLAGS, *out)
    assert code == 1, err
    limit = ["--max-eo-gap", "2", "--quiet"]
    new = unrelated(tmp_path / "new.csv", 2000, 1)
    code, printed, err = shell("audit", tmp_path / "m", new, *ROLE_FLAGS, *limit)
    assert code == 1, printed + err
    assert "collapsed" in printed + err


@pytest.mark.parametrize("threshold", ["0.000001", "0.999999"])
def test_fault_43_everyone_decided_alike_does_not_pass(shell, model, loans_csv, threshold):
    """The gap is then 0, which says nothing: the gate is inconclusive, not passed."""
    gate = ["audit", model, loans_csv, *ROLE_FLAGS, "--threshold", threshold, "--max-eo-gap", "0.5"]
    code, printed, err = shell(*gate, "--json", "--quiet")
    assert AuditResult.from_json(printed).eo_gap == 0
    assert code == 3
    assert "inconclusive" in err
    assert "everyone gets the same decision at this threshold, so gaps of decisions say nothing" in err
    assert shell(*gate, "--max-gcig", "0.000001", "--quiet")[0] == 1  # the reasons can still fail
