"""What audits state, over many samples of populations whose true values are known."""

import pytest
from benchmarks.error_rates import STATED, simulate, tolerated


@pytest.mark.slow
def test_statements_are_wrong_no_more_often_than_documented():
    found = simulate(n_samples := 200, n_rows=600)
    for name, stated in STATED.items():
        n = n_samples * (1 if "GCIG" in name or "no disparity" in name else 20)
        assert found.pop(name) <= tolerated(stated, n), name
    for name, ratio in found.items():  # an unbiased floor; the ratio has a standard error of about 5 %
        assert ratio == pytest.approx(1, abs=0.15), name
