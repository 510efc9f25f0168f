"""What to do next: ranked findings, each with the column, the remedy that gcig offers, and the command."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gcig.records import Evaluation
from gcig.report.answers import Setting, _listed, _of_hundred
from gcig.report.document import Answer, Step, Steps

_MOST = 3
_PLACES = {"model": "MODEL", "file": "FILE", "target": "TARGET", "positive": ""}


def audit_steps(
    found: Evaluation,
    verdict: Any,
    setting: Setting,
    answers: Mapping[str, Answer],
    names: Mapping[str, str] | None = None,
) -> Steps:
    """Return the three most important things to do about an audited model."""
    places = {**_PLACES, **(names or {})}
    columns = list(getattr(verdict, "columns", {}))[:2]
    code, cause = getattr(verdict, "code", ""), getattr(verdict, "cause", "")
    steps: list[Step] = []
    if found.degenerate:
        reason = "equal rates of a model that does not rank or decide say nothing."
        steps.append(Step("Repair the model first:", reason))
    if answers["attribute"].tone == "bad":
        share = found["attribute_effect"]
        said = f"it alone changes {_of_hundred(share)} of 100 decisions."
        steps.append(
            Step(
                f"Train without the column {setting.attribute}:",
                said,
                _train(places, setting, "--out", "fair/"),
            )
        )
    if code == "different_standards" and cause != "attribute_shift":
        teacher = _train(places, setting, "--teacher", places["model"], "--out", "fair/")
        steps.append(
            Step(
                f"Apply one standard to {_listed(columns)}:",
                "keep the predictions and mend the reasons.",
                teacher,
            )
        )
    if answers["people"].tone == "bad" and found.task != "number":
        bound = max(0.02, round(found["outcome_gap"] / 2, 2)) if "outcome_gap" in found else 0.05
        steps.append(
            Step(
                "Train for equal treatment:",
                "bound the outcome gap at half of what it is.",
                _train(places, setting, "--max-gap", f"{bound:g}", "--out", "fair/"),
            )
        )
    if code in ("group_differences", "different_standards") and columns and cause != "attribute_shift":
        declared = [word for column in columns for word in ("--legitimate", column)]
        steps.append(
            Step(
                f"Decide whether {_listed(columns)} may count:",
                "then any dependence that is left is a different standard.",
                _audit(places, setting, *declared),
            )
        )
    if code in ("uncertain", "undefined"):
        steps.append(Step("Audit more rows:", "these do not settle the question.", _audit(places, setting)))
    if found.task != "number":
        steps.append(
            Step(
                "Look at single people:",
                "why they were decided so, and what would change it.",
                _command("explain", places, setting, "--row", "0", "--html", "person.html"),
            )
        )
    steps.append(
        Step(
            "Keep this audit:",
            "the next one then says what changed.",
            _audit(places, setting, "--json") + " > audit.json",
        )
    )
    return Steps(steps[:_MOST])


def training_steps(
    out: str, setting: Setting, target: str, test: str, *, fairer: bool, missed: Sequence[str] = ()
) -> Steps:
    """Return what to do with a trained model."""
    places = {**_PLACES, "model": out, "file": test, "target": target}
    steps = []
    if missed:
        steps.append(Step("Look at what was missed:", "; ".join(missed) + "."))
    steps.append(Step("Decide new cases:", "", shlex.join(["gcig", "predict", out, "NEW.csv"])))
    steps.append(Step("Audit on other rows:", "", _audit(places, setting, "--html", "audit.html")))
    if fairer:
        steps.append(Step("Fairer still:", "a larger --budget, or --max-reason-gap X or --max-gap X."))
    return Steps(steps[:_MOST])


def _train(places: Mapping[str, str], setting: Setting, *more: str) -> str:
    words = ["gcig", "train", places["file"], *_roles(places, setting), *more]
    return shlex.join(words)


def _audit(places: Mapping[str, str], setting: Setting, *more: str) -> str:
    return _command("audit", places, setting, *more)


def _command(name: str, places: Mapping[str, str], setting: Setting, *more: str) -> str:
    return shlex.join(["gcig", name, places["model"], places["file"], *_roles(places, setting), *more])


def _roles(places: Mapping[str, str], setting: Setting) -> list[str]:
    sensitive = [word for column in setting.sensitive for word in ("--sensitive", column)]
    positive = ["--positive", places["positive"]] if places["positive"] else []
    return ["--target", places["target"], *positive, *sensitive]
