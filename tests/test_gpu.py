"""Every public path on a CUDA device, against the same path on the CPU; skipped without a device."""

import copy
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

import gcig
from gcig.benchmark.trials import common_parameters
from gcig.core.attribution import ATTRIBUTIONS, Score, resolve_attribution
from gcig.core.references import Members
from gcig.core.task import TASKS
from gcig.methods import METHODS
from support.networks import image_problem, token_problem
from support.problems import flat_gradient, make_problem

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
torch.backends.cudnn.allow_tf32 = False  # by default, convolutions round to ten bits
# Relative to the largest entry.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def table_problem(dtype, **options):
    problem = make_problem(n=64, columns=12, **options)
    return problem.network.to(dtype), problem.x.to(dtype), problem.y, problem.groups


PROBLEMS = {
    "smooth": lambda dtype: table_problem(dtype, hidden=(16, 8)),
    "kinked": lambda dtype: table_problem(dtype, hidden=(16, 8), activation="relu"),
    "classes": lambda dtype: table_problem(dtype, task="classes"),
    "number": lambda dtype: table_problem(dtype, task="number"),
    "images": lambda dtype: image_problem(dtype=dtype),
    "tokens": lambda dtype: token_problem(dtype=dtype),
}
EVERY_PROBLEM = pytest.mark.parametrize("kind", list(PROBLEMS))
EVERY_TYPE = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=str)


def on_device(*parts):
    return [copy.deepcopy(part).cuda() for part in parts]


def assert_agree(found, expected, dtype):
    found, expected = found.detach().cpu().double(), expected.detach().double()
    scale = max(float(expected.abs().max()), 1e-12)
    assert float((found - expected).abs().max()) <= TOLERANCE[dtype] * scale


@EVERY_TYPE
@EVERY_PROBLEM
@pytest.mark.parametrize("name", list(ATTRIBUTIONS))
def test_attributions(kind, dtype, name):
    parts, how, values = PROBLEMS[kind](dtype), resolve_attribution(name), []
    for module, x, y, groups in (parts, on_device(*parts)):
        baselines = gcig.GroupBaselines.from_data(x, y, groups)
        values.append(how.attribute(Score.of(module, baselines.task, y), x, baselines.of(y)))
    assert values[1].is_cuda
    assert_agree(values[1], values[0], dtype)


@EVERY_TYPE
@EVERY_PROBLEM
@pytest.mark.parametrize("penalty", [gcig.GCIGPenalty, gcig.ReasonGapPenalty])
@pytest.mark.parametrize("moved", [False, True], ids=["made on the device", "moved to it"])
def test_penalties_and_their_gradients(kind, dtype, penalty, moved):
    parts, found = PROBLEMS[kind](dtype), []
    for device, (module, x, y, groups) in (("cpu", parts), ("cuda", on_device(*parts))):
        rows = parts[1:] if moved else (x, y, groups)
        own = penalty(gcig.GroupBaselines.from_data(*rows), random_state=0).to(device)
        value = own(module, x, y)
        found.append((value, flat_gradient(value, module)))
    for one, other in zip(*found, strict=True):
        assert_agree(other, one, dtype)


@EVERY_TYPE
def test_groups_of_inputs_and_moving_averages(dtype):
    module, x, y, groups = token_problem(dtype=dtype)
    values = []
    for parts in ((module, x, y, groups), on_device(module, x, y, groups)):
        baselines = gcig.GroupBaselines.from_data(*parts[1:])
        penalty = gcig.GCIGPenalty(baselines, origin=torch.arange(5).unsqueeze(1)).to(parts[1].device)
        values.append((penalty(*parts), baselines.values))
    for one, other in zip(*values, strict=True):
        assert_agree(other, one, dtype)


@pytest.mark.parametrize("key", list(TASKS))
def test_members_are_those_of_the_same_generator(key):
    problem = make_problem(key)
    found = []
    for x, y, groups in ((problem.x, problem.y, problem.groups), on_device(*problem[:3])):
        baselines = gcig.GroupBaselines.from_data(x, y, groups, task=key)
        cells = torch.arange(baselines.task.n_cells, device=x.device)
        found.append(Members(baselines.rows).of(cells, torch.Generator().manual_seed(0)))
    assert_agree(found[1], found[0], torch.float64)


def test_labels_out_of_range_are_refused_and_the_device_survives():
    module, x, y, groups = on_device(*PROBLEMS["smooth"](torch.float32))
    penalty = gcig.GCIGPenalty(gcig.GroupBaselines.from_data(x, y, groups))
    with pytest.raises(ValueError, match="y must be codes of classes from 0 to 1"):
        penalty(module, x, y + 1)
    assert penalty(module, x, y).isfinite()


@pytest.fixture(scope="module")
def german():
    return gcig.load_dataset("german")


def fit(name, data, **options):
    """Fit a method on the device."""
    given = common_parameters(name, {"random_state": 0, "device": "cuda", "max_epochs": 4, **options})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = METHODS[name].estimator(**given)
        return model.fit(data.X, data.y, sensitive_features=data.sensitive_features)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_trains_on_the_device(name, german):
    model = fit(name, german)
    decisions = model.predict(german.X, **_group_argument(model, german))
    assert np.mean(decisions == german.y) > 0.5


def test_fits_in_threads_are_those_of_one_thread(german):
    def score(seed):
        with torch.cuda.stream(torch.cuda.Stream()):
            return fit("fairx", german, random_state=seed).decision_function(german.X)

    expected = [score(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(score, range(4)))
    np.testing.assert_allclose(found, expected, atol=1e-2)


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
    data, groups = (german.X, german.y), {"sensitive_features": german.sensitive_features}
    options = {"device": "cuda", "random_state": 0, "max_epochs": 4, "repair": "always"}
    model = gcig.FairXClassifier(**options, max_gap=0.3, max_reason_gap=0.3).fit(*data, **groups)
    assert set(model.bounds_) == {"max_gap", "max_reason_gap"}
    path = gcig.FairXClassifier(**options).path(*data, **groups, budgets=[0.02, 0.05])
    assert len(path.models) > 1
    assert all(np.isfinite(each.predict_proba(german.X)).all() for each in path.models)


@EVERY_TYPE
@pytest.mark.parametrize("kind", ["smooth", "kinked", "images", "tokens"])
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
            gcig_found = audit.evaluation.gcig
            figures.append((evaluation.auc, evaluation.gcig, score, gcig_found, *disparities))
    np.testing.assert_allclose(figures[1], figures[0], rtol=max(1e-9, TOLERANCE[dtype]))


def test_training_in_a_loop_of_ones_own_with_autocast():
    module, x, y, groups = (each.cuda() for each in token_problem(dtype=torch.float32))
    penalty = gcig.GCIGPenalty(gcig.GroupBaselines.from_data(x, y, groups))
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = binary_cross_entropy_with_logits(module(x)[:, 0].float(), y.float()) + penalty(module, x, y)
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in module.parameters())
