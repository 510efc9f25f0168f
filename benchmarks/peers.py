"""FairX and other tools at an equal EO gap: `python -m benchmarks.peers`.

Every tool has a few settings. On each fold, a quarter of the training rows judges them: of the settings whose
equalized odds gap there is at most the target, the one with the highest AUC is taken (the smallest gap if
there is none), trained on all training rows, and measured on the test fold. No test row takes part in a
choice. Losses of AUC are relative to the same kind of model without fairness: the plain network, or LightGBM.

    python -m benchmarks.peers [--datasets adult compas] [--folds 2] [--json FILE] [--jobs 2]

Methods of this package: FairX (a bound), the Lagrangian, adversarial and exponentiated-gradient methods.
Peers: fairret (a penalty in a torch loop), OxonFair and error-parity (post-processing of LightGBM), FairGBM.
A peer that is not installed or fails is left out, with a line that says so: FairGBM 0.9.14 passes an argument
that scikit-learn has removed, and error-parity needs NumPy 1, and so an environment of its own.
Post-processing decides by a rule per group on top of the base model's score: its AUC is that of the base
model, and its decisions need the group of every new row. "Effect" is the share of decisions that change if
only the protected column of a person, and the group that post-processing is told, are exchanged: a gap can be
closed by letting the protected attribute decide.
"""

import argparse
import importlib.util
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.metrics import balanced_accuracy_score, f1_score, roc_auc_score

import gcig
from gcig.methods import METHODS
from gcig.models.mlp import make_mlp
from gcig.tables.encoding import TableEncoder
from gcig.tables.splitting import hold_out, k_folds

TARGETS = {"adult": 0.05, "bank": 0.08, "compas": 0.10}
PROTECTED = {"adult": "sex", "compas": "race"}  # bank: the groups are ranges of age, a number
STRENGTHS = (0.03, 0.1, 0.3, 1.0, 3.0)
TOLERANCES = (0.01, 0.02, 0.05, 0.1)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """Rows of a table: as a frame, encoded, with labels and group codes."""

    X: Any
    encoded: NDArray[np.float32]
    y: NDArray[np.int64]
    groups: NDArray[np.int64]

    def __getitem__(self, rows: NDArray[np.intp]) -> "Part":
        return Part(self.X.iloc[rows], self.encoded[rows], self.y[rows], self.groups[rows])


@dataclass(frozen=True)
class Answer:
    """The scores and decisions of a trained tool on some rows; `model` is explained, if it is a network."""

    scores: Floats
    decided: NDArray[np.int64]
    model: Any = None


Predict = Callable[[Part], Answer]
Train = Callable[[Part, float], Predict]


def _method(key: str, parameter: str, **more: float) -> Train:
    def train(rows: Part, strength: float) -> Predict:
        given = {parameter: strength, **more} if parameter else more
        model = METHODS[key].estimator(random_state=0, **given)
        model.fit(rows.X, rows.y, sensitive_features=rows.groups)

        def predict(new: Part) -> Answer:
            decided = np.asarray(model.predict(new.X, sensitive_features=new.groups), dtype=np.int64)
            return Answer(model.predict_proba(new.X, sensitive_features=new.groups)[:, 1], decided, model)

        return predict

    return train


def _lightgbm(rows: Part) -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(random_state=0, n_jobs=1, verbose=-1).fit(rows.encoded, rows.y)


def _plain_lightgbm(rows: Part, strength: float) -> Predict:  # noqa: ARG001 (it has no setting)
    model = _lightgbm(rows)

    def predict(new: Part) -> Answer:
        scores = model.predict_proba(new.encoded)[:, 1]
        return Answer(scores, (scores >= 0.5).astype(np.int64))

    return predict


def _fairret(rows: Part, strength: float) -> Predict:
    from fairret.loss import NormLoss
    from fairret.statistic import FalsePositiveRate, TruePositiveRate

    torch.manual_seed(0)
    network = make_mlp(rows.encoded.shape[1], (64, 32), "silu")
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-4)
    terms = [NormLoss(TruePositiveRate()), NormLoss(FalsePositiveRate())]
    inputs, labels = torch.from_numpy(rows.encoded), torch.from_numpy(rows.y).float()
    groups = torch.nn.functional.one_hot(torch.from_numpy(rows.groups)).float()
    for _ in range(30):
        for batch in torch.randperm(len(labels)).split(512):
            logit = network(inputs[batch]).reshape(-1, 1)
            label = labels[batch].reshape(-1, 1)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logit, label)
            for term in terms:
                loss = loss + strength * term(logit, groups[batch], label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    network.eval()

    def predict(new: Part) -> Answer:
        with torch.no_grad():
            scores = torch.sigmoid(network(torch.from_numpy(new.encoded)).reshape(-1)).double().numpy()
        return Answer(scores, (scores >= 0.5).astype(np.int64), network)

    return predict


def _error_parity(rows: Part, tolerance: float) -> Predict:
    from error_parity import RelaxedThresholdOptimizer

    train, calibration = hold_out(rows.y, rows.groups, fraction=0.25, random_state=1)
    model, rest = _lightgbm(rows[train]), rows[calibration]
    rule = RelaxedThresholdOptimizer(
        predictor=lambda inputs: model.predict_proba(inputs)[:, 1], tolerance=tolerance, seed=0
    )
    rule.fit(X=rest.encoded, y=rest.y, group=rest.groups)

    def predict(new: Part) -> Answer:
        decided = np.asarray(rule(new.encoded, group=new.groups), dtype=np.int64)
        return Answer(model.predict_proba(new.encoded)[:, 1], decided)

    return predict


def _oxonfair(rows: Part, tolerance: float) -> Predict:
    import oxonfair
    from oxonfair import group_metrics

    train, calibration = hold_out(rows.y, rows.groups, fraction=0.25, random_state=1)
    model, rest = _lightgbm(rows[train]), rows[calibration]
    data = oxonfair.DataDict(rest.y, rest.encoded, rest.groups)
    rule = oxonfair.FairPredictor(model, data)
    rule.fit(group_metrics.accuracy, group_metrics.equalized_odds, tolerance)

    def predict(new: Part) -> Answer:
        asked = oxonfair.DataDict(new.y, new.encoded, new.groups)
        decided = np.asarray(rule.predict(asked), dtype=np.int64).reshape(-1)
        return Answer(model.predict_proba(new.encoded)[:, 1], decided)

    return predict


def _fairgbm(rows: Part, tolerance: float) -> Predict:
    from fairgbm import FairGBMClassifier

    model = FairGBMClassifier(
        constraint_type="FNR,FPR",
        constraint_fnr_tolerance=tolerance,
        constraint_fpr_tolerance=tolerance,
        random_state=0,
        n_jobs=1,
    )
    model.fit(rows.encoded, rows.y, constraint_group=rows.groups)

    def predict(new: Part) -> Answer:
        scores = model.predict_proba(new.encoded)[:, -1]
        return Answer(scores, (scores >= 0.5).astype(np.int64))

    return predict


# name -> (module that it needs, how to train it, its settings, the model without fairness)
TOOLS: dict[str, tuple[str, Train, tuple[float, ...], str]] = {
    "plain network": ("gcig", _method("unconstrained", ""), (0.0,), ""),
    "LightGBM": ("lightgbm", _plain_lightgbm, (0.0,), ""),
    "FairX": ("gcig", _method("fairx", "max_gap"), (), "plain network"),
    "FairX, standards_weight=0": (
        "gcig",
        _method("fairx", "max_gap", standards_weight=0.0),
        (),
        "plain network",
    ),
    "Lagrangian": ("gcig", _method("lagrangian", "max_gap"), TOLERANCES, "plain network"),
    "adversarial": ("gcig", _method("adversarial", "alpha"), STRENGTHS, "plain network"),
    "exponentiated gradient": ("gcig", _method("agarwal", "eps"), TOLERANCES, "plain network"),
    "fairret": ("fairret", _fairret, STRENGTHS, "plain network"),
    "OxonFair": ("oxonfair", _oxonfair, TOLERANCES, "LightGBM"),
    "FairGBM": ("fairgbm", _fairgbm, TOLERANCES, "LightGBM"),
    "error-parity": ("error_parity", _error_parity, TOLERANCES, "LightGBM"),
}


def main() -> None:
    """Run all tools, and print one table per dataset."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="+", choices=list(TARGETS), default=list(TARGETS))
    parser.add_argument("--tools", nargs="+", choices=list(TOOLS), default=list(TOOLS))
    parser.add_argument("--folds", type=int, default=2, help="how many of the five folds to run")
    parser.add_argument("--json", type=Path, help="write results here, and go on from those that are there")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    missing = [tool for tool in arguments.tools if importlib.util.find_spec(TOOLS[tool][0]) is None]
    for tool in missing:
        print(f"{tool} is left out: the module {TOOLS[tool][0]} is not installed.", file=sys.stderr)
    file = arguments.json
    known = json.loads(file.read_text()) if file is not None and file.exists() else []
    done = {tuple(each["trial"]) for each in known}
    left = [
        (name, tool, fold)
        for name in arguments.datasets
        for fold in range(arguments.folds)
        for tool in arguments.tools
        if tool not in missing and (name, tool, fold) not in done
    ]
    finished = Parallel(n_jobs=arguments.jobs, return_as="generator_unordered")(
        delayed(_try)(*each) for each in left
    )
    for found in finished:
        if "error" in found:  # a peer may not fit the other installed packages
            print(f"{found['trial']} failed: {found['error']}", file=sys.stderr)
            continue
        known.append(found)
        print(f"{found['trial']}: {found['seconds']:.0f} s", file=sys.stderr)
        if file is not None:
            file.write_text(json.dumps(known, indent=1) + "\n")
    for name in arguments.datasets:
        print("\n".join(table(name, [each for each in known if each["trial"][0] == name])), end="\n\n")


def _try(name: str, tool: str, fold: int) -> dict[str, Any]:
    try:
        return choose_and_measure(name, tool, fold)
    except Exception as error:
        return {"trial": [name, tool, fold], "error": f"{type(error).__name__}: {error}"}


def choose_and_measure(name: str, tool: str, fold: int) -> dict[str, Any]:
    """Choose the setting of a tool on a part of the training rows, and measure it on the test fold."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    start = time.perf_counter()
    data = gcig.load_dataset(name)
    codes = np.unique(data.sensitive_features.astype(str), return_inverse=True)[1]
    y = data.y.to_numpy(dtype=np.int64)
    rows, test = k_folds(y, codes, n_splits=5, random_state=0)[fold]
    encoder = TableEncoder().fit(data.X.iloc[rows])
    encoded = encoder.transform(data.X)
    table_rows = Part(data.X, encoded, y, codes)
    _, train, settings, _ = TOOLS[tool]
    target = TARGETS[name]
    if tool.startswith("FairX"):  # its bound is the target
        settings = (target,)
    chosen = settings[0]
    if len(settings) > 1:
        kept, judged = hold_out(y[rows], codes[rows], fraction=0.25, random_state=0)
        found = {each: train(table_rows[rows[kept]], each) for each in settings}
        ranks = {
            each: _rank(predict(table_rows[rows[judged]]), table_rows[rows[judged]], target)
            for each, predict in found.items()
        }
        chosen = min(ranks, key=lambda each: ranks[each])
    predict = train(table_rows[rows], chosen)
    answer = predict(table_rows[test])
    truth = y[test]
    measured = {
        "trial": [name, tool, fold],
        "setting": chosen,
        "auc": float(roc_auc_score(truth, answer.scores)),
        "f1": float(f1_score(truth, answer.decided)),
        "balanced_accuracy": float(balanced_accuracy_score(truth, answer.decided)),
        "eo_gap": _gap(answer.decided, table_rows[test]),
        "gcig": float("nan"),
        "effect": float("nan"),
        "seconds": time.perf_counter() - start,
    }
    if name in PROTECTED:
        exchanged = _exchange(table_rows[test], table_rows[rows], PROTECTED[name], encoder)
        measured["effect"] = float((predict(exchanged).decided != answer.decided).mean())
    if answer.model is not None:
        explained = data.X if hasattr(answer.model, "encoder_") else encoded
        part = (lambda of: explained.iloc[of]) if hasattr(explained, "iloc") else (lambda of: explained[of])
        measured["gcig"] = gcig.metrics.gcig_score(
            answer.model,
            part(test),
            truth,
            sensitive_features=codes[test].astype(str),
            reference=(part(rows), y[rows], codes[rows].astype(str)),
        )
    return measured


def _exchange(rows: Part, others: Part, column: str, encoder: TableEncoder) -> Part:
    """Return the rows with the protected column of a random person of another group."""
    random, X = np.random.default_rng(0), rows.X.copy()
    for group in np.unique(rows.groups):
        inside = rows.groups == group
        values = others.X[column].to_numpy()[others.groups != group]
        X.loc[inside, column] = random.choice(values, inside.sum())
    return Part(X, encoder.transform(X), rows.y, 1 - rows.groups)  # two groups


def _gap(decided: NDArray[np.int64], rows: Part) -> float:
    return gcig.metrics.equalized_odds_gap(rows.y, decided, sensitive_features=rows.groups)


def _rank(answer: Answer, rows: Part, target: float) -> tuple[bool, float]:
    gap = _gap(answer.decided, rows)
    return gap > target, gap if gap > target else -float(roc_auc_score(rows.y, answer.scores))


def table(name: str, results: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of one dataset's table: means over folds."""
    head = ("EO gap", "AUC", "AUC loss", "F1", "bal. acc.", "GCIG", "effect")
    yield f"{name}, target EO gap {TARGETS[name]:g}"
    yield f"{'':24}" + "".join(f"{each:>11}" for each in head)
    means = {}
    for tool in TOOLS:
        own = [each for each in results if each["trial"][1] == tool]
        if own:
            keys = ("eo_gap", "auc", "f1", "balanced_accuracy", "gcig", "effect")
            means[tool] = {key: float(np.mean([each[key] for each in own])) for key in keys}
    for tool, found in means.items():
        base = means.get(TOOLS[tool][3], {}).get("auc", found["auc"])
        values = (found["eo_gap"], found["auc"], base - found["auc"], found["f1"], found["balanced_accuracy"])
        yield f"{tool:24}" + "".join(f"{value:>11.4f}" for value in (*values, found["gcig"], found["effect"]))


if __name__ == "__main__":
    main()
