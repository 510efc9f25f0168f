import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gcig.metrics.ranking import best_f1_threshold, logit_of

rows = st.lists(
    st.tuples(st.sampled_from([1e-9, 0.1, 0.25, 0.5, 0.500001, 0.9]), st.integers(0, 1)),
    min_size=1,
    max_size=12,
)


def f1(labels, positive):
    return 2 * (labels & positive).sum() / max(1, labels.sum() + positive.sum())


def predicts_both(labels, positive):
    n, n_positive = len(labels), labels.sum()
    return positive.sum() >= n_positive / 2 and (~positive).sum() >= (n - n_positive) / 2


@given(rows)
def test_f1_is_near_the_highest_of_the_thresholds_that_predict_both_classes(rows):
    probability = np.array([p for p, _ in rows])
    labels = np.array([y for _, y in rows])
    chosen = best_f1_threshold(torch.tensor(probability), torch.tensor(labels))
    assert 0 < chosen < 1
    offered = [probability >= other for other in probability]
    allowed = [positive for positive in offered if predicts_both(labels, positive)] or offered
    assert f1(labels, probability >= chosen) >= max(f1(labels, p) for p in allowed) - 0.0101


def test_of_thresholds_that_are_as_good_the_one_nearest_to_one_half_is_taken():
    probability = torch.cat([torch.linspace(0.05, 0.2, 20), torch.linspace(0.8, 0.95, 20)])
    labels = (probability > 0.5).long()
    assert best_f1_threshold(probability, labels) == pytest.approx(0.5)


def test_a_majority_of_positives_does_not_make_everyone_positive():
    probability = torch.linspace(0.4, 0.9, 40)
    labels = torch.ones(40, dtype=torch.int64)
    labels[::4] = 0
    chosen = best_f1_threshold(probability, labels)
    assert (probability < chosen).sum() >= 5


def test_the_threshold_lies_halfway_between_two_rows():
    probability = torch.tensor([0.2, 0.4, 0.8])
    assert best_f1_threshold(probability, torch.tensor([0, 0, 1])) == pytest.approx(0.6)


def test_neighbouring_floats_are_kept_apart():
    low = np.float64(0.3)
    high = np.nextafter(low, 1)
    chosen = best_f1_threshold(torch.tensor([low, high], dtype=torch.float64), torch.tensor([0, 1]))
    assert low < chosen <= high


@pytest.mark.parametrize("probability", [1e-6, 0.3, 0.5, 0.999])
def test_the_logit_of_a_probability(probability):
    assert torch.sigmoid(torch.tensor(logit_of(probability)).double()).item() == pytest.approx(probability)
