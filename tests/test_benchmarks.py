"""The instruments of the benchmarks: explainers of their own, trials that go on, aims."""

import argparse
import importlib
import math
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.aims import judge, judge_unseen
from benchmarks.explainers import Lime, Occlusion
from benchmarks.tables import TABLES, law_like, named
from benchmarks.trials import run_trials
from benchmarks.tuning import DIFFERENCES, LOGARITHMS, Change, changed, check_removed, compare, list_changes
from torch import nn

from gcig.core.attribution import Score
from gcig.methods.fairx import student
from gcig.methods.fairx.tuning import TUNING

ROOT = Path(__file__).parents[1]
BLOCKS = torch.tensor([0, 0, 1, 2])


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py")))
def test_every_benchmark_can_be_imported(name: str) -> None:
    importlib.import_module(f"benchmarks.{name}")


def linear() -> Score:
    module = nn.Linear(4, 1)
    return Score(module, torch.ones(5, 1))


def test_occlusion_of_a_linear_model_is_weight_times_difference() -> None:
    score, rows, references = linear(), torch.randn(5, 4), torch.randn(3, 5, 4)
    expected = (rows - references) * score.module.weight.detach()
    values = Occlusion(BLOCKS).attribute(score, rows, references)
    assert torch.allclose(values[..., 0], expected[..., :2].sum(-1), atol=1e-5)
    assert torch.allclose(values[..., 2:], expected[..., 2:], atol=1e-5)
    assert not values[..., 1].any()


def test_lime_of_a_linear_model_has_no_varying_part() -> None:
    score, rows, references = linear(), torch.randn(5, 4), torch.randn(3, 1, 4).expand(3, 5, 4)
    values = Lime(BLOCKS, n_masks=200, ridge=1e-6).attribute(score, rows, references)
    expected = (rows - references) * score.module.weight.detach()
    assert torch.allclose(values[..., 2:], expected[..., 2:], atol=1e-3)
    apart = values[0] - values[1]
    assert torch.allclose(apart, apart[:1].expand_as(apart), atol=1e-3)


def square(x: int, log: str) -> int:
    if x < 0:
        raise ValueError("negative")
    with Path(log).open("a") as file:
        file.write(f"{x}\n")
    return x * x


def test_trials_go_on_where_they_ended(tmp_path: Path) -> None:
    options = argparse.Namespace(out=tmp_path / "out", jobs=1, json=tmp_path / "all.json", stored=False)
    log = tmp_path / "log"

    def trials(*numbers: int) -> dict[str, dict[str, object]]:
        return {f"trial {x}": {"x": x, "log": str(log)} for x in numbers}

    with pytest.raises(RuntimeError, match="trial -1"):
        run_trials(square, trials(2, -1, 3), options)
    assert run_trials(square, trials(2, 3, 4), options) == {"trial 2": 4, "trial 3": 9, "trial 4": 16}
    assert log.read_text().split() == ["2", "3", "4"]


def fold(**changes: float) -> dict[str, object]:
    parts = [f"{part}_{kind}" for part in ("gap", "common", "varying") for kind in ("means", "members")]
    figures = dict.fromkeys([*parts, "gap_chance", "common_chance", "varying_chance", "macro_f1"], 0.1)
    trust = ("reason_size", "effective_columns", "reference_offset", "faithfulness", "attribute_effect")
    figures |= dict.fromkeys([*trust, "auc", "gcig_means", "gcig_members"], 0.5)
    names = [
        f"{each}_{part}"
        for each in ("members", "shapley", "lime", "occlusion")
        for part in ("gap", "varying")
    ]
    unseen = dict.fromkeys([*names, "medoid_gcig", "mode_gcig"], 0.2)
    unseen |= {f"{name}_chance": 0.01 for name in names}
    fairx = {**figures, **changes}
    return {
        "task": "binary",
        "plain": {**figures, "unseen": unseen},
        "fairx": {**fairx, "unseen": {name: changes.get(name, value) for name, value in unseen.items()}},
    }


def missed(aims: list) -> list[str]:
    return [aim.what.split(",")[0] for aim in aims if aim.met is False]


def test_a_model_like_the_plain_network_meets_what_is_relative_to_it() -> None:
    assert missed(judge("diabetes", [fold()])) == []
    assert missed(judge_unseen([fold()])) == []


@pytest.mark.parametrize(
    ("change", "aim"),
    [
        ({"varying_means": 0.11}, "varying_means"),
        ({"gap_members": 0.11}, "gap_members"),
        ({"reason_size": 0.7}, "reason_size"),
        ({"macro_f1": 0.08}, "loss of macro F1"),
        ({"effective_columns": 0.2}, "effective_columns"),
        ({"faithfulness": 0.3}, "faithfulness"),
    ],
)
def test_a_worse_figure_misses_its_aim(change: dict[str, float], aim: str) -> None:
    assert missed(judge("diabetes", [fold(**change)])) == [aim]


def test_a_part_within_chance_is_not_larger() -> None:
    assert missed(judge("diabetes", [fold(gap_members=0.11, gap_chance=0.2)])) == []


def test_shapley_values_have_to_fall_with_the_members() -> None:
    assert missed(judge_unseen([fold(members_gap=0.05, shapley_gap=0.1)])) == ["fall of shapley_gap"]
    assert missed(judge_unseen([fold(lime_varying=0.3)])) == ["lime_varying"]
    within_chance = fold(
        members_gap=-0.01, shapley_gap=0.01, members_gap_chance=0.01, shapley_gap_chance=0.01
    )
    assert missed(judge_unseen([within_chance])) == []


def test_undefined_figures_are_no_verdict() -> None:
    (aim,) = (each for each in judge("x", [fold(attribute_effect=math.nan)]) if "attribute" in each.what)
    assert aim.met is None


def test_families_of_tables_and_the_share_of_positive_labels() -> None:
    assert named(["german", "untuned"]) == ["german", "breast cancer", "diabetes", "adult by race"]
    assert set(named(["shipped", "untuned", "synthetic"])) == set(TABLES)
    table = law_like(4000)
    assert abs(table.y.mean() - 0.95) < 0.005
    assert 0.1 < np.mean(table.groups == "small") < 0.25


def test_every_constant_can_be_removed() -> None:
    names = [each.name for each in fields(TUNING)]
    check_removed(names)
    assert {name for each in list_changes(names, ["removed"]) for name in each.constants} == set(names)
    with pytest.raises(SystemExit, match="new_constant"):
        check_removed([*names, "new_constant"])


def test_changed_constants_reach_training_and_are_restored() -> None:
    name = fields(TUNING)[0].name
    with changed({name: 123}) as read:
        assert read == set()
        assert getattr(student.TUNING, name) == 123
        assert read == {name}
    assert student.TUNING is TUNING


@pytest.mark.parametrize(("effect", "expected"), [(0.0, 0), (0.5, 1)])
def test_an_effect_is_judged_by_the_noise_of_seeds(effect: float, expected: int) -> None:
    rng = np.random.default_rng(0)
    defaults, change = Change("defaults"), Change("a", {"a": 0})
    runs = {
        (each.name, "german", fold, seed): {
            name: rng.normal(scale=0.05) + effect * (each is change and name == "gap_means")
            for name in LOGARITHMS + DIFFERENCES
        }
        for each in (defaults, change)
        for fold in range(2)
        for seed in range(3)
    }
    found = compare(change, [defaults, change], ["german"], runs)
    assert len(found["worse"]) == expected
    assert found["better"] == []
