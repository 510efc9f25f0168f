import math

import numpy as np
import pandas as pd
import pytest

from gcig.experiments import design
from gcig.experiments.claims import Evidence, count_verdicts, judge_claims
from gcig.experiments.claims import table as table_of
from gcig.experiments.measurements import GROUPS, STEPS, rule_name
from gcig.experiments.paper import FAIRX, PUBLISHED, VERSIONS, paper, printed
from gcig.experiments.run_folder import Request, Results
from gcig.experiments.statements import CLAIMS
from gcig.methods.registry import METHODS
from support.example_results import DATASETS, fold_row, frame_of
from support.pages import marks_of

FOLDS = 5
FAST = tuple(claim for claim in CLAIMS if claim.place != "RQ2")  # correlations have a bootstrap each


def printed_frame(datasets=DATASETS, methods=tuple(METHODS), folds=FOLDS, **changes) -> pd.DataFrame:
    """Results that have the paper's own means, with a little noise; both versions have those of FairX."""
    rng = np.random.default_rng(0)
    rows = []
    for dataset in datasets:
        source = "compas-paper" if dataset == "compas" else dataset
        for method in methods:
            means = {m: printed(source, method, m)[0] for m in ("eo_gap", "f1", "gcig_raw")}
            for fold in range(folds):
                noise = 1 + 1e-4 * rng.normal(size=3)
                values = {name: value * n for (name, value), n in zip(means.items(), noise, strict=True)}
                rows.append(fold_row(dataset, method, fold, **(values | changes.get(method, {}))))
    return frame_of(rows)


def ablation_frame(changes: dict[str, float]) -> pd.DataFrame:
    return frame_of(
        [
            fold_row(
                "compas-paper",
                method,
                fold,
                variant=design.ablated("compas-paper", method, key).variant,
                gcig_raw=0.03 * (1 + changes.get(key, 0) / 100) * (1 + 1e-4 * fold),
            )
            for method in (PUBLISHED, FAIRX)
            for key in design.CONFIGURATIONS
            for fold in range(FOLDS)
        ]
    )


def sensitivity_frame(collapsed=False) -> pd.DataFrame:
    return frame_of(
        [
            fold_row(s.dataset, s.method, fold, variant=s.variant, collapsed=collapsed)
            for s in design.SENSITIVITY.settings(["compas-paper"], VERSIONS)
            for fold in range(FOLDS)
        ]
    )


COST = [
    {"rule": rule_name(t), "groups": n, "ratio": 1.1 * t, "low": t, "high": t} for t in STEPS for n in GROUPS
]


def collected(frame=None, *, methods=None, datasets=None, quick=False, **other) -> Results:
    request = Request.of(methods=methods, datasets=datasets, quick=quick)
    theirs = {key: each["change"] or 0 for key, each in paper()["ablation"]["values"].items()}
    frames = {
        "comparison": printed_frame() if frame is None else frame,
        "ablation": ablation_frame(theirs),
        "sensitivity": sensitivity_frame(),
        **other.pop("frames", {}),
    }
    return Results(request, frames, pd.DataFrame(), {"cost": COST, "datasets": []}, **other)


def judged(found: Results, claims=FAST):
    return {each.claim.key: each.findings for each in judge_claims(found, claims)}


def verdicts(found: Results, claims=FAST):
    return {
        key: (each.get(PUBLISHED) or next(iter(each.values()))).verdict
        for key, each in judged(found, claims).items()
    }


def test_the_papers_own_numbers_replicate_its_claims():
    found = verdicts(collected())
    assert len(found) == len(FAST)
    others = {key: verdict for key, verdict in found.items() if verdict != "replicated"}
    assert others.pop("competitive") == others.pop("small_t") == "cannot be tested"
    assert set(others) <= {"not_worse"}


def test_correlations_contain_the_papers_or_not():
    rng = np.random.default_rng(1)
    frame = printed_frame()
    for name, r in {"german": 0.99, "bank": 0.263, "compas-paper": -0.6}.items():
        own = (frame["dataset"] == name) & (frame["method"] != FAIRX)
        x, noise = rng.normal(size=(2, own.sum()))
        x = (x - x.mean()) / x.std()
        noise -= noise.mean() + (noise @ x) / len(x) * x  # the sample has this correlation exactly
        frame.loc[own, "eo_gap"] = 0.2 + 0.01 * x
        frame.loc[own, "gcig_raw"] = 0.2 + 0.01 * (r * x + math.sqrt(1 - r * r) * noise / noise.std())
    found = judged(collected(frame), [claim for claim in CLAIMS if claim.place == "RQ2"])
    assert found["pearson/german"][PUBLISHED].verdict == "not replicated"  # 0.383 in the paper
    assert found["pearson/bank"][PUBLISHED].verdict == "replicated"
    assert "does not vanish" in found["pearson/compas-paper"][PUBLISHED].reason
    assert found["significant/spearman"][FAIRX].holds is not None
    assert found["spearman/all"][FAIRX].holds is not None
    low, high = map(float, found["pearson/bank"][PUBLISHED].ours.split("(")[1].rstrip(")").split(" to "))
    assert low < 0.263 < high


@pytest.mark.parametrize(
    ("key", "method", "values"),
    [
        ("reduces/adult", PUBLISHED, {"gcig_raw": 0.1}),  # falls by less than the paper's
        ("reduces/all", PUBLISHED, {"gcig_raw": 0.2}),
        ("best/gcig_raw/bank", PUBLISHED, {"gcig_raw": 0.13}),
        ("best/gcig_raw/bank", "agarwal", {"gcig_raw": 0.01}),
        ("best/f1/german", "dir", {"f1": 0.9}),
        ("near/f1/adult", "lagrangian", {"f1": 0.9}),
        ("best/eo_gap/german", "agarwal", {"eo_gap": 0.01}),
        ("identical_gaps", "hardt", {"eo_gap": 0.05}),
        ("factor_five", PUBLISHED, {"gcig_raw": 0.1}),
        ("champion/gcig_raw/fairx", "dir", {"gcig_raw": 0.01}),
        ("champion/f1/lagrangian", "dir", {"f1": 0.99}),
        ("wins/agarwal", "agarwal", {"gcig_raw": 0.01}),
        ("not_worse", PUBLISHED, {"f1": 0.1}),
    ],
)
def test_claims_fail_if_the_results_say_otherwise(key, method, values):
    (claim,) = (claim for claim in CLAIMS if claim.key == key)
    found = judged(collected(printed_frame(**{method: values})), [claim])[key][PUBLISHED]
    assert found.verdict == "not replicated"
    assert found.reason


def test_a_difference_within_chance_is_no_replication():
    frame = printed_frame()
    own = (frame["dataset"] == "german") & (frame["method"] == PUBLISHED)
    frame.loc[own, "eo_gap"] = [0.02, 0.3, 0.05, 0.2, 0.03]  # the lowest mean, but far apart
    found = judged(collected(frame))["best/eo_gap/german"][PUBLISHED]
    assert found.verdict == "not replicated"
    assert "may be chance" in found.reason


def test_hardt_has_no_rank_in_gcig():
    found = judged(collected(printed_frame(hardt={"gcig_raw": 0.001})))
    assert found["best/gcig_raw/adult"][PUBLISHED].holds
    assert found["champion/gcig_raw/fairx"][PUBLISHED].holds


def test_both_versions_are_judged():
    found = judged(collected(printed_frame(**{FAIRX: {"gcig_raw": 0.3}})))["best/gcig_raw/adult"]
    assert found[PUBLISHED].holds
    assert found[FAIRX].holds is False
    assert "Adversarial 0.190" in found[FAIRX].ours


def test_a_subset_judges_only_what_it_can_test():
    few = collected(methods=["unconstrained", "fairx"], datasets=["german"])
    assert set(judged(few)) == {"reduces/german", "competitive", "small_t"}
    table = table_of(judge_claims(few, FAST), len(CLAIMS))
    assert f"{len(CLAIMS) - 3} claims need datasets, methods or experiments" in table.notes[-1]
    assert "FairX, as published" not in table.header
    assert judged(collected(methods=["unconstrained", "dir"])) == {}
    quick = judged(collected(quick=True))
    assert "insensitive" not in quick
    assert "ablation/full" in quick
    decided = {key for key, each in quick.items() if any(f.holds is not None for f in each.values())}
    assert decided == {"slower", "groups"}  # two folds decide nothing else


def test_two_folds_decide_nothing():
    found = judged(collected(printed_frame(folds=2)))
    assert found["reduces/german"][PUBLISHED].verdict == "cannot be tested"
    assert found["best/f1/german"][PUBLISHED].reason == "fewer than three folds are finished"


def test_missing_results_cannot_be_tested():
    empty = {name: frame_of([]) for name in ("comparison", "ablation", "sensitivity")}
    found = verdicts(collected(frames=empty))
    assert set(found.values()) == {"cannot be tested", "replicated"}
    assert {key for key, verdict in found.items() if verdict == "replicated"} == {"slower", "groups"}


def test_ablation_and_sensitivity():
    changed = {
        "frames": {"ablation": ablation_frame({"prediction+eo": -14, "full": -5, "prediction+gcig": -6})}
    }
    found = judged(collected(**changed))
    assert found["ablation/prediction+eo"][FAIRX].reason == "the change has the opposite sign"
    assert found["ablation/prediction+gcig"][FAIRX].holds
    assert "excludes the printed change" in found["ablation/full"][FAIRX].reason
    assert found["both_terms"][FAIRX].holds is False
    collapsed = judged(collected(frames={"sensitivity": sensitivity_frame(collapsed=True)}))["insensitive"]
    assert collapsed[PUBLISHED].verdict == "not replicated"
    assert "110" not in collapsed[PUBLISHED].ours
    assert collapsed[PUBLISHED].ours.endswith("60 collapsed folds")


def test_changes_are_ratios_with_their_interval():
    frame = frame_of(
        [
            fold_row("german", method, fold, gcig_raw=value * 2**fold, repeat=repeat)
            for method, value in (("unconstrained", 0.2), (FAIRX, 0.05))
            for fold in range(3)
            for repeat in range(2)
        ]
    )
    request = Request(("german",), ("unconstrained", FAIRX))
    data = Evidence(Results(request, {"comparison": frame}, pd.DataFrame()))
    found = data.change("gcig_raw", data.folds("german", FAIRX), data.folds("german", "unconstrained"))
    assert (found.value, found.low, found.high) == pytest.approx((-0.75, -0.75, -0.75))
    difference = data.difference("german", FAIRX, "unconstrained", "gcig_raw")
    assert difference.value == pytest.approx(-0.15 * 7 / 3)  # fits of a fold are averaged: three values
    values = np.array([-0.15, -0.3, -0.6])
    error = math.sqrt((1 / 3 + 0.25) * values.var(ddof=1))
    assert difference.high == pytest.approx(values.mean() + 4.30265 * error, rel=1e-4)


def test_verdicts_are_counted_and_marked():
    found = judge_claims(collected(printed_frame(**{FAIRX: {"gcig_raw": 0.5}})), FAST)
    counts = {version: count_verdicts(found, version) for version in (PUBLISHED, FAIRX)}
    assert all(sum(each.values()) == len(FAST) for each in counts.values())
    assert counts[PUBLISHED]["replicated"] > counts[FAIRX]["replicated"]
    table = table_of(found, len(FAST))
    assert len(table.rows) == len(FAST)
    assert set(marks_of(table).values()) == {"concern"}
