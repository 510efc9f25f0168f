"""Every public path on a CUDA device, against the same path on the CPU; skipped without a device."""

import copy
import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module

import numpy as np
import pytest
import torch
from gcig.core.memory import memory_budget
from gcig.engine.cuda_graph import RecordedStep
from gcig.engine.optimizer import FlatAdamW, clip_norm, flat_parameters
from gcig.losses.gcig import GCIGPenalty
from gcig.losses.objective import Objective, ObjectiveGradient
from gcig.losses.terms import (
    ColumnTerm,
    ConsistencyTerm,
    MiniBatch,
    OutcomeTerm,
    PredictionTerm,
    ReasonTerm,
)
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

import gcig
from gcig.benchmark.trials import common_parameters
from gcig.core.attribution import attributions
from gcig.core.references import GroupBaselines, GroupMembers
from gcig.methods import METHODS
from gcig.models.mlp import make_mlp
from support.networks import image_problem, token_problem

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
torch.backends.cudnn.allow_tf32 = False  # by default, convolutions round to ten bits
# Relative to the largest entry.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def table_problem(hidden, activation, dtype, n=64, columns=12):
    generator = torch.Generator().manual_seed(0)
    module = make_mlp(columns, hidden, activation, generator=generator).to(dtype)
    x = torch.randn(n, columns, generator=generator, dtype=torch.float64).to(dtype)
    codes = torch.arange(n)
    return module, x, codes % 2, codes // 2 % 2


PROBLEMS = {
    "one hidden layer": lambda dtype: table_problem((16,), "silu", dtype),
    "layered": lambda dtype: table_problem((16, 8), "silu", dtype),
    "kinked": lambda dtype: table_problem((16, 8), "relu", dtype),
    "images": lambda dtype: image_problem(dtype=dtype),
    "tokens": lambda dtype: token_problem(dtype=dtype),
}
EVERY_PROBLEM = pytest.mark.parametrize("kind", list(PROBLEMS))
EVERY_TYPE = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)


def assert_agree(found, expected, dtype):
    found, expected = found.detach().cpu().double(), expected.detach().double()
    scale = max(float(expected.abs().max()), 1e-12)
    assert float((found - expected).abs().max()) <= TOLERANCE[dtype] * scale


def gradients(loss, module):
    return torch.autograd.grad(loss, list(module.parameters()), allow_unused=True, materialize_grads=True)


@EVERY_TYPE
@EVERY_PROBLEM
@pytest.mark.parametrize("n_steps", ["auto", 4])
def test_attributions(kind, dtype, n_steps):
    module, x, y, groups = PROBLEMS[kind](dtype)
    references = GroupBaselines.from_data(x, y, groups).of(y)
    expected = attributions(module, x, references, n_steps=n_steps)
    found = attributions(module.cuda(), x.cuda(), references.cuda(), n_steps=n_steps)
    assert (found.rule, found.n_steps) == (expected.rule, expected.n_steps)
    assert_agree(found.values, expected.values, dtype)
    if n_steps == "auto":
        assert float(found.residual.mean()) < 1e-2


@pytest.mark.filterwarnings("ignore::gcig.core.modules.KinkWarning")
@EVERY_TYPE
@EVERY_PROBLEM
@pytest.mark.parametrize("options", [{}, {"max_bytes": 20_000}], ids=["at once", "in chunks"])
@pytest.mark.parametrize("members", [None, 3], ids=["means", "members"])
def test_the_penalty_and_its_gradient(kind, dtype, options, members):
    module, x, y, groups = PROBLEMS[kind](dtype)
    references = GroupBaselines.from_data(x, y, groups)
    if members:
        references = GroupMembers(x, y, groups, n_members=members)
    penalty = GCIGPenalty(references, **options)
    value = penalty(module, x, y)
    expected = gradients(value, module)
    on_device = copy.deepcopy(module).cuda()
    other = copy.deepcopy(penalty).cuda()(on_device, x.cuda(), y.cuda())
    assert_agree(other, value, dtype)
    flat, there = (
        torch.cat([each.flatten().cpu().double() for each in parts])
        for parts in (expected, gradients(other, on_device))
    )
    # On an H200 they differed by 6e-6 at most in single precision. On either device they differ by up to
    # 2.4e-5 from double precision, in which secants blend slopes less (`gcig.core.numerics.sharpness`).
    assert float((there - flat).norm() / flat.norm()) <= TOLERANCE[dtype]


@EVERY_TYPE
def test_groups_of_inputs(dtype):
    module, x, y, groups = token_problem(dtype=dtype)
    penalty = GCIGPenalty(GroupBaselines.from_data(x, y, groups), origin=torch.arange(5).unsqueeze(1))
    expected = penalty(module, x, y)
    assert_agree(penalty.cuda()(module.cuda(), x.cuda(), y.cuda()), expected, dtype)


@EVERY_TYPE
def test_references_follow_mini_batches(dtype):
    _, x, y, groups = table_problem((4,), "silu", dtype)
    here = GroupBaselines.from_data(x, y, groups)
    there = GroupBaselines.from_data(x.cuda(), y.cuda(), groups.cuda())
    assert_agree(there.values, here.values, dtype)
    for baselines, where in ((here, "cpu"), (there, "cuda")):
        baselines.update(x[:5].to(where), y[:5].to(where), groups[:5].to(where))
    assert_agree(there.values, here.values, dtype)
    assert torch.equal(there.n_empty.cpu(), here.n_empty)


def test_members_are_drawn_on_the_device_of_the_rows():
    _, x, y, groups = table_problem((4,), "silu", torch.float32)
    members = GroupMembers(x.cuda(), y.cuda(), groups.cuda(), n_members=50)
    for label in (0, 1):
        for group in (0, 1):
            cell = {tuple(row) for row in x[(y == label) & (groups == group)].tolist()}
            assert {tuple(row) for row in members.values[label, group].tolist()} <= cell
    before = members.values.clone()
    members.update(x, y, groups)
    assert not torch.equal(members.values, before)


def test_labels_out_of_range_are_refused_and_the_device_survives():
    module, x, y, groups = (each.cuda() for each in table_problem((4,), "silu", torch.float32))
    penalty = GCIGPenalty(GroupBaselines.from_data(x, y, groups))
    with pytest.raises(ValueError, match="must be int64 codes from 0 to 1"):
        penalty(module, x, y + 1)
    assert penalty(module, x, y).isfinite()


def test_memory_is_planned_from_what_is_free():
    device = torch.device("cuda", 0)
    free, _ = torch.cuda.mem_get_info(device)
    assert memory_budget(device, needed=10**15) >= 0.45 * free
    assert memory_budget(device, needed=10**15, max_bytes=1000) == 1000


def make_gradient(module, x, y, groups):
    means, members = GroupBaselines.from_data(x, y, groups), GroupMembers(x, y, groups, n_members=3)
    origin = torch.arange(x.shape[1], device=x.device) // 2
    of_mean, of_members = GCIGPenalty(means, origin=origin), GCIGPenalty(members, origin=origin)
    objective = Objective(
        {
            "prediction": PredictionTerm(),
            "outcome": OutcomeTerm(gcig.EqualizedOddsLoss(2)),
            "gcig": ReasonTerm(of_mean),
            "gcig_members": ReasonTerm(of_members),
            "consistency": ConsistencyTerm(of_mean, of_members),
            "column_shortfall": ColumnTerm(of_mean, 5.5),
        }
    )

    def make_batch(rows):
        return MiniBatch(
            module, x[rows], y[rows], groups[rows], y[rows].to(x.dtype), n_explained=len(rows) // 2
        )

    return ObjectiveGradient(objective, module, make_batch, len(x))


WEIGHTS = {"outcome": 0.3, "gcig": 0.2, "gcig_members": 0.2, "consistency": 0.1, "column_shortfall": 0.3}


def train(problem, *, recorded, n_steps=12):
    module, x, y, groups = problem
    with flat_parameters(module) as parameters:
        gradient = make_gradient(module, x, y, groups)
        optimizer = FlatAdamW(parameters, learning_rate=1e-2, weight_decay=1e-2)
        made = []

        def load():
            optimizer.param_groups[0]["lr"] = 1e-2 / (1 + len(made))
            optimizer.load_rate()
            made.append(len(made))
            return gradient.load({name: weight * len(made) / 5 for name, weight in WEIGHTS.items()})

        def compute(rows):
            terms = gradient(rows)
            clip_norm(parameters, 5.0)
            optimizer.step()
            return terms

        step = RecordedStep(compute, load, gradient.generators) if recorded else None
        history = []
        for index in range(n_steps):
            rows = (torch.arange(32 - index % 2, device=x.device) + 5 * index) % len(x)
            if step is None:
                load()
                history.append(compute(rows))
            else:
                history.append(step(rows))
        assert step is None or not step.fails
        return history, nn.utils.parameters_to_vector(module.parameters()).detach().clone()


def test_a_recorded_step_is_the_step_itself():
    """Weights, learning rate, number of rows and draws change from step to step."""
    problem = table_problem((16, 8), "silu", torch.float32)
    problem = (problem[0].cuda(), *(each.cuda() for each in problem[1:]))
    twin = (copy.deepcopy(problem[0]), *problem[1:])
    eager, expected = train(problem, recorded=False)
    recorded, found = train(twin, recorded=True)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for one, other in zip(recorded, eager, strict=True):
        assert one.keys() == other.keys()
        for name, value in one.items():
            torch.testing.assert_close(value, other[name], rtol=1e-3, atol=1e-5)


def test_the_first_steps_are_those_of_the_cpu():
    problem = table_problem((16, 8), "silu", torch.float64)
    on_device = (copy.deepcopy(problem[0]).cuda(), *(each.cuda() for each in problem[1:]))
    weights = {**WEIGHTS, "gcig_members": 0.0, "consistency": 0.0}  # members are drawn on the device
    parts = []
    for module, x, y, groups in (problem, on_device):
        with flat_parameters(module) as parameters:
            gradient = make_gradient(module, x, y, groups)
            assert gradient.engine is not None
            terms = gradient(torch.arange(32, device=x.device), weights)
            parts.append((parameters[0].grad.clone(), terms))
    assert_agree(parts[1][0], parts[0][0], torch.float64)
    for name, value in parts[0][1].items():
        assert_agree(parts[1][1][name], value, torch.float64)


def test_the_optimizer_is_that_of_torch():
    start, gradient = torch.randn(50), torch.randn(20, 50)
    found, expected = (nn.Parameter(start.clone().cuda()) for _ in range(2))
    found.grad = torch.zeros_like(found)
    ours = FlatAdamW([found], learning_rate=1e-2, weight_decay=0.1)
    theirs = torch.optim.AdamW([expected], lr=1e-2, weight_decay=0.1)
    for step, each in enumerate(gradient.cuda()):
        for optimizer in (ours, theirs):
            optimizer.param_groups[0]["lr"] = 1e-2 / (1 + step)
        found.grad.copy_(each)
        expected.grad = each
        ours.step()
        theirs.step()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def german():
    return gcig.load_dataset("german")


def fit(name, data, **options):
    """Fit a method on the device; steps must be recorded."""
    given = common_parameters(name, {"random_state": 0, "device": "cuda", "max_epochs": 4, **options})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = METHODS[name].estimator(**given)
        model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
    assert not [each for each in caught if "could not be recorded" in str(each.message)]
    return model


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_trains_on_the_device(name, german):
    model = fit(name, german)
    decisions = model.predict(german.X, **_group_argument(model, german))
    assert np.mean(decisions == german.y) > 0.5


RECORDING_MODULES = {
    "agarwal": "exponentiated_gradient",
    "lagrangian": "outcome_bounded",
    "adversarial": "outcome_bounded",
    "fairx-paper": "fairx.paper",
}


@pytest.mark.parametrize("name", RECORDING_MODULES)
def test_a_recorded_method_is_the_method_itself(name, german, monkeypatch):
    found = fit(name, german, max_epochs=1)  # kinks of ReLU networks amplify rounding from epoch to epoch
    module = import_module(f"gcig.methods.{RECORDING_MODULES[name]}")
    monkeypatch.setattr(module, "can_be_recorded", lambda _: False)
    expected = fit(name, german, max_epochs=1)
    scores, wanted = (model.decision_function(german.X) for model in (found, expected))
    np.testing.assert_allclose(scores, wanted, atol=1e-3 * np.abs(wanted).max())


def test_fits_in_threads_are_those_of_one_thread(german):
    def score(seed):
        model = gcig.FairXClassifier(device="cuda", max_epochs=4, random_state=seed)
        with torch.cuda.stream(torch.cuda.Stream()):
            model.fit(german.X, german.y, sensitive_features=german.sensitive_features)
            return model.decision_function(german.X)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        expected = [score(seed) for seed in range(4)]
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(score, range(4)))
    # A step that is not recorded adds its gradients in another order.
    assert not [each for each in caught if "could not be recorded" in str(each.message)]
    np.testing.assert_allclose(found, expected, atol=1e-2)


def multiply_at_once():
    """Return the products of four recordings that are replayed on four streams, and those of each alone."""
    generator = torch.Generator("cuda").manual_seed(0)
    left, right = torch.randn(2, 4, 20_000, 64, device="cuda", generator=generator)

    def multiply(number, rows):
        product = left[number].index_select(0, rows).T @ right[number]  # a sum of 20,000, in parts
        return {"sum": product.sum(), "trace": product.trace()}

    steps = [RecordedStep(partial(multiply, number), lambda: None) for number in range(4)]
    rows, streams = torch.arange(20_000, device="cuda"), [torch.cuda.Stream() for _ in steps]
    alone = [[step(rows) for _ in range(3)][-1] for step in steps]  # run, record, replay
    torch.cuda.synchronize()
    found = [[] for _ in steps]
    for _ in range(100):
        for values, step, stream in zip(found, steps, streams, strict=True):
            with torch.cuda.stream(stream):
                values.append(step(rows))
    torch.cuda.synchronize()
    return found, alone


def test_recordings_share_no_memory():
    for values, alone in zip(*multiply_at_once(), strict=True):
        assert all(torch.equal(value[name], alone[name]) for value in values for name in alone)


@pytest.mark.filterwarnings("ignore")
def test_models_that_are_trained_at_once_are_those_trained_one_by_one(german):
    frames = [
        gcig.compare(
            german.X,
            german.y,
            sensitive_features=german.sensitive_features,
            methods=["unconstrained", "fairx"],
            folds=3,
            device="cuda",
            n_jobs=n_jobs,
        ).frame
        for n_jobs in (3, 1)
    ]
    assert {json.loads(parameters)["device"] for parameters in frames[0]["parameters"]} == {"cuda"}
    for measure, tolerance in {"auc": 0.02, "gcig": 0.02}.items():
        np.testing.assert_allclose(frames[0][measure], frames[1][measure], atol=tolerance)


def _group_argument(model, data):
    try:
        model.predict(data.X[:2])
    except TypeError:
        return {"sensitive_features": data.sensitive_features}
    except ValueError:
        return {"sensitive_features": data.sensitive_features}
    return {}


@pytest.mark.filterwarnings("ignore")
def test_a_fit_is_as_good_as_on_the_cpu(german):
    found = {}
    for device in ("cpu", "cuda"):
        model = gcig.FairXClassifier(device=device, random_state=0)
        model.fit(german.X, german.y, sensitive_features=german.sensitive_features)
        found[device] = gcig.evaluate(model, german.X, german.y, sensitive_features=german.sensitive_features)
    assert abs(found["cuda"].auc - found["cpu"].auc) < 0.03
    assert abs(found["cuda"].gcig - found["cpu"].gcig) < 0.06


@pytest.mark.filterwarnings("ignore")
def test_bounds_and_trade_offs_are_trained_on_the_device(german):
    data = german.X, german.y
    options = {"device": "cuda", "random_state": 0, "max_epochs": 4, "max_eo_gap": 0.3, "max_gcig": 0.3}
    model = gcig.FairXClassifier(**options).fit(*data, sensitive_features=german.sensitive_features)
    assert set(model.bounds_) == {"max_gcig", "max_eo_gap"}
    assert all(np.isfinite([bound.value, bound.limit]).all() for bound in model.bounds_.values())
    start = gcig.FairXClassifier(device="cuda", random_state=0, max_epochs=4)
    path = start.path(*data, sensitive_features=german.sensitive_features)
    assert len(path.models) > 1
    assert all(np.isfinite(each.predict_proba(german.X)).all() for each in path.models)


@EVERY_TYPE
@EVERY_PROBLEM
def test_modules_on_the_device_are_evaluated_audited_and_explained(kind, dtype):
    module, x, y, groups = PROBLEMS[kind](dtype)
    rows, options = x.numpy(), {"sensitive_features": groups.numpy()}
    figures = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for device in ("cpu", "cuda"):
            model = copy.deepcopy(module).to(device)
            evaluation = gcig.evaluate(model, rows, y.numpy(), **options)
            audit = gcig.audit(model, rows, y.numpy(), **options)
            score = gcig.metrics.gcig_score(model, rows, y.numpy(), **options)
            reference = (rows, y.numpy(), groups.numpy())
            found = gcig.explain(model, rows[:2], reference=reference, neighbours=False, min_cell=2)
            disparities = [row.disparity for row in found.record.rows]
            gcig_found = audit.record.procedural.gcig.value
            figures.append((evaluation.auc, evaluation.gcig, score, gcig_found, *disparities))
    np.testing.assert_allclose(figures[1], figures[0], rtol=max(1e-9, TOLERANCE[dtype]))


def test_training_in_a_loop_of_ones_own_with_autocast():
    module, x, y, groups = (each.cuda() for each in token_problem(dtype=torch.float32))
    penalty = GCIGPenalty(GroupBaselines.from_data(x, y, groups))
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = binary_cross_entropy_with_logits(module(x)[:, 0].float(), y.float()) + penalty(module, x, y)
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in module.parameters())
