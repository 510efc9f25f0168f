"""Generators draw what they state, and the truth about a model needs no explanations."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from gcig._arguments import InputError
from gcig.records.verdict import VERDICTS
from gcig.validity import GENERATORS, Truth, generate, known_truth

TASKS = ("binary", "classes", "number")


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", GENERATORS)
def test_a_generator_draws_rows_of_its_formula(name, task) -> None:
    drawn, again = (generate(name, 400, task=task, seed=3) for _ in range(2))
    assert list(drawn.X.columns) == list(drawn.generator.columns)
    assert {drawn.generator.says, drawn.generator.says_declared} <= set(VERDICTS)
    assert set(drawn.generator.switches) <= set(drawn.X.columns)
    np.testing.assert_array_equal(drawn.X, again.X)
    np.testing.assert_array_equal(drawn.y, again.y)
    assert not drawn.X.equals(generate(name, 400, task=task, seed=4).X)
    outputs = drawn.model(torch.tensor(drawn.X.to_numpy()))
    assert outputs.shape == ((400, 3) if task == "classes" else (400,))
    if task == "number":
        assert np.corrcoef(outputs.numpy(), drawn.y)[0, 1] > 0.6
    else:
        assert np.bincount(drawn.y, minlength=3)[: 2 if task == "binary" else 3].min() > 60


def test_both_halves_have_every_verdict() -> None:
    for half in ("design", "end"):
        own = [each for each in GENERATORS.values() if each.half == half]
        assert len(own) == len(GENERATORS) / 2
        assert {each.says for each in own} == {"different_standards", "group_differences", "no_dependence"}


@pytest.mark.parametrize("name", [name for name, each in GENERATORS.items() if each.half == "design"])
def test_the_truth_of_the_formula_is_what_a_fair_auditor_says(name) -> None:
    rows = generate(name, 60_000, seed=5)
    plain, declared = known_truth(rows.model, rows)
    made = rows.generator
    assert plain.code == made.says
    assert declared.code == made.says_declared or name == "cancelling"  # needs a million rows
    assert np.isnan(plain.switched) == (not made.switches)


def test_truth_of_additive_models_and_products() -> None:
    rows = generate("shifted", 60_000, seed=1)
    plain, _ = known_truth(rows.model, rows)
    assert plain.standards < 1e-6
    assert 0.4 < plain.reach < 0.6
    model = LogisticRegression().fit(rows.X[:3000], rows.y[:3000])
    assert known_truth(model, rows)[0].standards < 1e-6


def test_both_neighbours_are_right_close_to_a_threshold() -> None:
    truth = Truth(reach=0.4, standards=0.11, shift=0.0, switched=np.nan)
    assert truth.code == "different_standards"
    assert truth.right == {"different_standards", "group_differences"}
    assert replace(truth, standards=0.5).right == {"different_standards"}
    small = replace(truth, reach=0.03, standards=0.0)
    assert small.right == {"no_dependence", "group_differences"}
    assert replace(small, declared=True).right == {"no_dependence", "different_standards"}


def test_several_groups_and_strength() -> None:
    drawn = generate("shifted", 4000, n_groups=8, strength=0.0)
    assert len(set(drawn.groups)) == 8
    means = drawn.X.groupby(drawn.groups)["x1"].mean()
    assert means.abs().max() < 0.3
    with pytest.raises(InputError, match="choose one of"):
        generate("unknown", 10)
    with pytest.raises(InputError, match="task"):
        generate("nothing", 10, task="ordinal")
