"""gcig, the NumPy reference implementations and the published test vectors agree."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from validation.vectors import REFERENCE, VECTORS, cases_of

from gcig.core.attribution import IntegratedGradients, Score
from gcig.core.explained import Block, ExplainedTable
from gcig.core.gap import signed_root, spread
from gcig.core.gcig import column_matrix, defined_rows, disparity
from gcig.core.references import Means, ReferenceRows
from gcig.core.task import Binary, Classes, Number
from gcig.metrics import evaluate
from gcig.metrics.predictions import equalized_odds_gap
from gcig.validity import load_vectors
from gcig.validity.specification import DEFINITIONS


def cases(definition):
    return [
        pytest.param(case["inputs"], case["values"], id=case["name"]) for case in load_vectors(definition)
    ]


def close(found, expected, tolerance=1e-6):
    np.testing.assert_allclose(np.asarray(found, dtype=float), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_vectors_are_those_of_the_reference_implementation(definition) -> None:
    stored = json.loads((VECTORS / f"{definition}.json").read_text())["cases"]
    for old, new in zip(stored, cases_of(definition), strict=True):
        assert (old["name"], old["inputs"]) == (new["name"], new["inputs"])
        for name, value in new["values"].items():
            close(np.array(old["values"][name]), np.array(value), 1e-8)


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_a_reference_implementation_is_short_and_needs_numpy_alone(definition) -> None:
    lines = (REFERENCE / f"{definition}.py").read_text().splitlines()
    assert len(lines) <= 40
    assert {line for line in lines if "import" in line.split()} == {"import numpy as np"}


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize(("inputs", "values"), cases("gcig"))
def test_gcig(inputs, values) -> None:
    if "outputs" in inputs:
        task = {
            "binary": Binary(),
            "classes": Classes(tuple(inputs["shares"])),
            "number": Number.of(tensor([0.0, 1.0])),
        }[inputs["task"]]
        close(task.score(tensor(inputs["outputs"]), torch.tensor(inputs["labels"])), values["score"])
        return
    attributions = tensor(inputs["attributions"])
    kept = defined_rows(attributions.abs().sum(-1))
    assert int((~kept).sum()) == 1
    close(disparity(attributions), values["disparity"])
    close(disparity(attributions)[kept].mean(), values["gcig"])
    close(disparity(attributions, norm="l2")[kept].mean(), values["gcig_l2"])


@pytest.mark.parametrize(("inputs", "values"), cases("references"))
def test_references(inputs, values) -> None:
    labels, groups = torch.tensor(inputs["labels"]), torch.tensor(inputs["groups"])
    task = Binary() if inputs["task"] == "binary" else Number.of(labels.double())
    found = Means(ReferenceRows(tensor(inputs["x"]), labels, groups, task, 3)).values
    close(found, values["means"])
    if inputs["task"] == "number":
        close(task.edges, values["edges"])
        close(task.centres, values["centres"])


class Formula(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.weights = nn.Parameter(tensor(weights), requires_grad=False)

    def forward(self, x):
        return x @ self.weights + x[..., 0] * x[..., 3] + torch.sin(x[..., 1])


@pytest.mark.parametrize(("inputs", "values"), cases("members"))
def test_members(inputs, values) -> None:
    people, references = tensor(inputs["people"]), tensor(inputs["references"])
    score = Score.of(Formula(inputs["weights"]), Binary(), torch.ones(len(people)))
    starts = references.unsqueeze(1).expand(-1, len(people), -1)
    if "donors" in inputs:
        starts = torch.where(torch.tensor(inputs["legitimate"]), references[inputs["donors"]], starts)
    found = IntegratedGradients("gauss_legendre", 8).attribute(score, people, starts).double()
    matrix = column_matrix(torch.tensor(inputs["origin"])).double()
    close(found @ matrix / inputs["spread"], values["table"], 1e-4)


def table_of(tables, groups, shares):
    """Return the table of attributions and the group of each of its references."""
    blocks, start = [], 0
    for values, share in zip(tables, shares, strict=True):
        a = tensor(values)
        places = torch.arange(start, start + len(a))
        people = torch.arange(a.shape[1])
        ones = torch.ones(len(a), dtype=a.dtype), torch.ones(a.shape[1], dtype=a.dtype)
        blocks.append(Block(share, a, places, people, *ones))
        start += len(a)
    return ExplainedTable(tuple(blocks), 1.0), torch.tensor(np.concatenate(groups))


@pytest.mark.parametrize(("inputs", "values"), cases("reason_gap"))
def test_reason_gap(inputs, values) -> None:
    if "scores" in inputs:
        close(spread(tensor(inputs["scores"])), values["spread"])
        return
    table, groups = table_of(**inputs)
    gap, varying = table.squares(groups, int(groups.max()) + 1).unbind(-1)
    close(signed_root(torch.stack([gap, gap - varying, varying])), values["gap_common_varying"])


@pytest.mark.parametrize(("inputs", "values"), cases("chance"))
def test_chance(inputs, values) -> None:
    table, groups = table_of([inputs["table"]], [inputs["groups"]], [1.0])
    square = table.squares(groups, 2)[0]
    null = table.squares(groups[torch.tensor(inputs["permutations"])], 2)[:, 0]
    close(float((1 + (null >= square - 1e-15).sum()) / (1 + len(null))), values["p"])
    close(signed_root(null.quantile(0.95)), values["chance"])
    found = table.figures(groups, 2)
    limits = [
        [getattr(each, end) for each in (found.gap, found.common, found.varying)] for end in ("low", "high")
    ]
    close(limits, values["limits"])


@pytest.mark.parametrize(("inputs", "values"), cases("outcome_gaps"))
def test_outcome_gaps(inputs, values) -> None:
    labels, predictions, groups = (np.array(inputs[name]) for name in ("labels", "predictions", "groups"))
    if inputs["task"] == "classes":
        found = equalized_odds_gap(labels, predictions, sensitive_features=groups)
        close(found, values["outcome_gap"])
        return
    close(Number.of(tensor(inputs["labels"])).outcome_edges, values["edges"])
    how = {"task": "number", "measures": ["outcome_gap"], "n_bootstrap": 0, "min_cell": 1}
    model = lambda X: np.asarray(X)[:, 0]  # noqa: E731
    found = evaluate(model, predictions[:, None], labels, sensitive_features=groups.astype(str), **how)
    close(found.outcome_gap, values["outcome_gap"])
