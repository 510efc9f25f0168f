"""Penalties for own loops: against Algorithm 1 in loops, the definition of the gap, and their options."""

import copy
import itertools
import math
import pickle

import pytest
import torch
from torch import distributed, nn
from torch.nn.functional import binary_cross_entropy_with_logits

import gcig
from gcig.core import penalties
from gcig.core.attribution import ATTRIBUTIONS, IntegratedGradients, quadrature
from gcig.core.modules import KinkWarning
from gcig.core.penalties import gaps_by_kind, smooth_root
from gcig.core.references import Means
from gcig.core.task import TASKS, Classes, as_outputs
from support.networks import image_problem, token_problem
from support.problems import Formula, Problem, finite_differences, flat_gradient, make_problem

EVERY_TASK = pytest.mark.parametrize("key", list(TASKS))
PENALTIES = {
    "gcig": lambda baselines, **options: gcig.GCIGPenalty(baselines, **options),
    "gap": lambda baselines, **options: gcig.ReasonGapPenalty(baselines, **options),
    "gap to means": lambda baselines, **options: gcig.ReasonGapPenalty(
        baselines, references="means", **options
    ),
}
EVERY_PENALTY = pytest.mark.parametrize("penalty", PENALTIES)


def algorithm_1(problem, values, rule, norm="l1", origin=None):
    """Disparities, row by row, group by group, node by node."""
    found = []
    for row, label, cell in zip(problem.x, problem.y, problem.task.cells(problem.y), strict=True):
        contrast, units = problem.task.contrast(label[None]).double(), []
        for start in values[cell]:
            slope = torch.zeros_like(row)
            for node, weight in zip(rule.nodes, rule.weights, strict=True):
                point = (start + node * (row - start)).requires_grad_()
                score = (as_outputs(problem.network(point.unsqueeze(0)), 1) * contrast).sum()
                slope = slope + weight * torch.autograd.grad(score, point, create_graph=True)[0]
            vector = ((row - start) * slope).flatten()
            if origin is not None:
                vector = torch.stack([vector[origin == block].sum() for block in origin.unique()])
            units.append(vector / (vector.abs().sum() if norm == "l1" else vector.square().sum().sqrt()))
        squares = [(a - b).square().sum() for a, b in itertools.combinations(units, 2)]
        found.append((sum(squares) / len(squares)).sqrt())
    return torch.stack(found)


def combine(problem, values, label_weights="sum"):
    cells = problem.task.cells(problem.y)
    means = torch.stack([values[cells == cell].mean() for cell in cells.unique()])
    return {"sum": 2 * means.mean(), "equal": means.mean(), "empirical": values.mean()}[label_weights]


# --- the paper's formula -------------------------------------------------------------------------------


@pytest.mark.parametrize(("groups", "norm"), [(2, "l1"), (2, "l2"), (3, "l1")])
@pytest.mark.parametrize("label_weights", ["sum", "equal", "empirical"])
def test_gcig_is_algorithm_1_with_its_gradient(groups, norm, label_weights):
    problem = make_problem(n=4 * groups + 7, groups=groups)
    baselines = problem.baselines()
    options = {"rule": "right", "n_steps": 8, "norm": norm, "label_weights": label_weights}
    found = gcig.GCIGPenalty(baselines, **options)(problem.network, problem.x, problem.y)
    expected = combine(
        problem, algorithm_1(problem, baselines.values, quadrature("right", 8), norm), label_weights
    )
    torch.testing.assert_close(found, expected)
    gradients = [flat_gradient(each, problem.network) for each in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("key", ["classes", "number"])
def test_gcig_of_other_tasks_is_the_same_loop(key):
    problem = make_problem(key, n=40)
    baselines, origin = problem.baselines(), torch.tensor([0, 1, 1, 0])
    found = gcig.GCIGPenalty(baselines, origin=origin)(problem.network, problem.x, problem.y)
    rule = quadrature("gauss_legendre", 2)
    expected = combine(problem, algorithm_1(problem, baselines.values, rule, origin=origin))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("kind", ["tokens", "patches"])
def test_groups_of_tokens_and_pixels_are_those_of_the_loop(kind):
    network, x, y, groups = token_problem() if kind == "tokens" else image_problem()
    network.eval()
    problem = Problem(x, y, groups, TASKS["binary"].of(y), network)
    if kind == "tokens":
        origin = torch.arange(x.shape[1]).unsqueeze(1)
    else:
        down, across = torch.meshgrid(torch.arange(6) // 3, torch.arange(6) // 2, indexing="ij")
        origin = 3 * down + across
    baselines, spread = problem.baselines(), origin.expand(x.shape[1:]).flatten()
    found = gcig.GCIGPenalty(baselines, origin=origin)(network, x, y)
    rule = quadrature("gauss_legendre", 2)
    expected = combine(problem, algorithm_1(problem, baselines.values, rule, origin=spread))
    torch.testing.assert_close(found, expected)


def test_groups_update_the_means_first_as_in_the_paper():
    problem = make_problem()
    baselines = problem.baselines(rate=0.5)
    twin = copy.deepcopy(baselines)
    rows = problem.x[:20] + 1, problem.y[:20]
    found = gcig.GCIGPenalty(baselines)(problem.network, *rows, problem.groups[:20])
    twin.update(*rows, problem.groups[:20])
    assert torch.equal(baselines.values, twin.values)
    assert found.item() == gcig.GCIGPenalty(twin)(problem.network, *rows).item()


def test_rows_without_reasons_are_left_out():
    problem = make_problem()
    baselines = problem.baselines()
    x = problem.x.clone()
    x[3] = baselines.values[problem.y[3], 1]
    penalty = gcig.GCIGPenalty(baselines, label_weights="empirical")
    found, others = penalty(problem.network, x, problem.y), torch.arange(48) != 3
    assert penalty.n_undefined == 1
    torch.testing.assert_close(found, penalty(problem.network, x[others], problem.y[others]))
    assert penalty.n_undefined == 0
    constant = Formula(lambda rows: rows.sum(1) * 0)
    assert penalty(constant, x, problem.y).item() == 0
    assert penalty.n_undefined == 48


@EVERY_PENALTY
def test_rows_are_compared_among_the_groups_with_references_for_their_label(penalty):
    """The third group lacks label 1; the fourth has nobody but label 2, who are compared with nobody."""
    problem = make_problem("classes", n=120, groups=3)
    groups = torch.where(problem.y == 2, 3, problem.groups)
    kept = ~((groups == 2) & (problem.y == 1))
    problem = problem._replace(x=problem.x[kept], y=problem.y[kept], groups=groups[kept])
    task, generator = problem.task, {"random_state": 0}
    whole = PENALTIES[penalty](problem.baselines(n_groups=4), **generator)
    value = whole(problem.network, problem.x, problem.y)
    assert value.isfinite()
    assert flat_gradient(value, problem.network).isfinite().all()
    if penalty == "gcig":
        assert whole.n_undefined == int((problem.y == 2).sum())
        x, row = problem.x.clone(), int((problem.y == 1).nonzero()[0])
        x[row] = whole.baselines.values[1, 0]  # without reasons relative to one of them
        whole(problem.network, x, problem.y)
        assert whole.n_undefined == int((problem.y == 2).sum()) + 1
    if penalty != "gap":  # members are drawn for all groups at once
        own = problem.y == 1
        two = (problem.groups < 2) & own
        pair = gcig.GroupBaselines.from_data(
            problem.x[two], problem.y[two], problem.groups[two], task=Classes(task.shares)
        )
        found, expected = (
            PENALTIES[penalty](each, **generator)(problem.network, problem.x[own], problem.y[own])
            for each in (problem.baselines(n_groups=4), pair)
        )
        torch.testing.assert_close(found, expected)


# --- the reason gap ------------------------------------------------------------------------------------


@EVERY_TASK
@pytest.mark.parametrize("weighted", [False, True])
def test_the_gap_penalty_is_the_definition(key, weighted):
    problem = make_problem(key, groups=3)
    baselines, weights = problem.baselines(), torch.arange(48.0).double() % 3 if weighted else None
    penalty = gcig.ReasonGapPenalty(baselines, scale=1.5, standards_weight=3.0, random_state=4)
    found = penalty(problem.network, problem.x, problem.y, weights)
    twin = gcig.ReasonGapPenalty(baselines, random_state=4)
    cells, expected = problem.task.cells(problem.y), 0.0
    for name, kind in twin.kinds.items():
        drawn = kind.of(cells, twin._generator).flatten(0, 1)
        a = IntegratedGradients().attribute(problem.score, problem.x, drawn) / 1.5
        a = a.unflatten(0, (-1, 3)).transpose(0, 1)  # (groups, draws, n, columns)
        squares = []
        for centred in (False, True):
            values = a.clone()
            w = torch.ones(48).double() if weights is None else weights
            freedom = float(w.sum())
            for cell in cells.unique() if centred else ():
                own = cells == cell
                mass = w[own].sum()
                values[:, :, own] -= (w[own, None] * values[:, :, own]).sum(2, keepdim=True) / mass
                freedom -= float(w[own].square().sum() / mass)
            total = 0.0
            for g, h in itertools.combinations(range(3), 2):
                difference = values[g] - values[h]  # (draws, n, columns)
                draws = range(len(difference))
                pairs = [(j, k) for j in draws for k in draws if j != k or len(draws) == 1]
                products = [(w * (difference[j] * difference[k]).sum(-1)).sum() for j, k in pairs]
                total += float(sum(products) / len(pairs) / 3)
            squares.append(total / freedom)
        expected += sum(
            weight * smooth_root(torch.tensor(each), 1e-3).item()
            for weight, each in zip((1, 3), squares, strict=True)
        )
        assert (name == "means") == (len(a[0]) == 1)
    assert found.item() == pytest.approx(expected, rel=1e-6)


@EVERY_PENALTY
@EVERY_TASK
def test_gradients_are_those_of_finite_differences(penalty, key, monkeypatch):
    """Of the squared gap: the divisor of its root is a constant."""
    monkeypatch.setattr(penalties, "smooth_root", lambda square, _: square)
    problem = make_problem(key, n=24, columns=3, hidden=(4,))
    baselines = problem.baselines()

    def value():
        return PENALTIES[penalty](baselines, random_state=0)(problem.network, problem.x, problem.y)

    found = flat_gradient(value(), problem.network)
    torch.testing.assert_close(found, finite_differences(value, problem.network), rtol=1e-4, atol=1e-6)


def test_the_gap_is_in_units_of_the_scale_and_larger_scores_do_not_lower_it():
    problem = make_problem()
    means = {"references": "means", "standards_weight": 0.0}
    one = gcig.ReasonGapPenalty(problem.baselines(), **means)(problem.network, problem.x, problem.y).item()
    doubled = Formula(lambda x: 2 * problem.network(x))
    two = gcig.ReasonGapPenalty(problem.baselines(), scale=2.0, **means)(doubled, problem.x, problem.y).item()
    assert two == pytest.approx(one)
    assert gcig.ReasonGapPenalty(problem.baselines(), **means)(doubled, problem.x, problem.y).item() > one


@pytest.mark.parametrize("name", ATTRIBUTIONS)
def test_an_attribution_that_is_not_complete_has_no_varying_part(name):
    problem = make_problem()
    values = [
        gcig.ReasonGapPenalty(
            problem.baselines(), attribution=name, standards_weight=weight, references="means"
        )(problem.network, problem.x, problem.y).item()
        for weight in (0.0, 2.0)
    ]
    assert (values[0] < values[1]) == ATTRIBUTIONS[name]().complete


def test_the_root_keeps_its_sign_and_has_a_finite_gradient():
    squares = torch.tensor([0.25, 0.0, -0.25], requires_grad=True)
    roots = smooth_root(squares, 1e-3)
    (slope,) = torch.autograd.grad(roots.sum(), squares)
    assert roots.detach().tolist() == pytest.approx([0.5, 0, -0.5], abs=2e-3)
    assert slope.isfinite().all()
    assert (slope > 0).all()


def test_training_on_the_penalty_lowers_the_gap():
    problem = make_problem(n=200, hidden=(8,))
    optimizer = torch.optim.Adam(problem.network.parameters(), 0.02)
    penalty = gcig.ReasonGapPenalty(problem.baselines(), random_state=0)
    cells, means = problem.task.cells(problem.y), Means(problem.baselines().rows)

    def gap():
        values = IntegratedGradients().attribute(problem.score, problem.x, means.of(cells)[0])
        found = gaps_by_kind({"means": values}, {"means": means}, problem.baselines(), cells, 1.0)["means"]
        return [each.item() for each in found]

    before = gap()
    for _ in range(60):
        optimizer.zero_grad()
        penalty(problem.network, problem.x, problem.y).backward()
        optimizer.step()
    assert all(after < 0.1 * start for after, start in zip(gap(), before, strict=True))


# --- options and modules -------------------------------------------------------------------------------


@EVERY_PENALTY
@EVERY_TASK
def test_modules_of_any_output_shape_and_number_type(penalty, key):
    problem = make_problem(key)
    values = []
    for dtype in (torch.float64, torch.float32):
        network = copy.deepcopy(problem.network).to(dtype)
        column = Formula(lambda x, network=network: as_outputs(network(x), len(x)))
        for module in (network, column):  # x of the baselines is float64
            found = PENALTIES[penalty](problem.baselines(), random_state=0)(
                module, problem.x.to(dtype), problem.y
            )
            assert found.shape == ()
            assert found.dtype == dtype
            values.append(found.item())
    assert values == pytest.approx([values[0]] * 4, rel=2e-3)


def test_how_many_rows_are_explained():
    problem = make_problem(n=100)
    seen = []

    class Seen(IntegratedGradients):
        def attribute(self, score, rows, references, **options):
            seen.append(len(rows))
            return super().attribute(score, rows, references, **options)

    large = nn.Sequential(nn.Linear(4, 250_000), nn.SiLU(), nn.Linear(250_000, 1)).double()
    for rows, module in (
        ("auto", problem.network),
        ("auto", large),
        ("all", problem.network),
        (7, problem.network),
    ):
        penalty = gcig.ReasonGapPenalty(
            problem.baselines(), rows=rows, attribution=Seen(), references="means"
        )
        with torch.no_grad():
            penalty(module, problem.x, problem.y)
    assert seen == [100, 32, 100, 7]


@EVERY_PENALTY
def test_random_rows_and_members_follow_the_seed(penalty):
    problem = make_problem(n=100)

    def values(seed):
        own = PENALTIES[penalty](problem.baselines(), rows=20, random_state=seed)
        return [own(problem.network, problem.x, problem.y).item() for _ in range(3)]

    assert values(1) == values(1)
    assert len({*values(1), *values(2), *values(None), *values(None)}) == 12


@EVERY_PENALTY
def test_parts_stay_in_their_modes_and_do_not_mix_rows(penalty):
    problem = make_problem()
    network = nn.Sequential(
        nn.Linear(4, 6), nn.BatchNorm1d(6), nn.SiLU(), nn.Dropout(0.5), nn.Linear(6, 1)
    ).double()
    network[1].eval()
    modes = [part.training for part in network.modules()]
    own = PENALTIES[penalty](problem.baselines(), random_state=0)
    state = copy.deepcopy(network.state_dict())
    value = own(network, problem.x, problem.y)
    assert [part.training for part in network.modules()] == modes
    assert all(torch.equal(each, state[name]) for name, each in network.state_dict().items())
    again = PENALTIES[penalty](problem.baselines(), random_state=0)(network.eval(), problem.x, problem.y)
    assert again.item() == value.item()


@EVERY_PENALTY
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_copies_behave_like_the_original(penalty, duplicate):
    problem = make_problem(groups=3)
    own = PENALTIES[penalty](problem.baselines(), rows=20, random_state=0)
    own(problem.network, problem.x, problem.y)
    twin = duplicate(own)
    found, expected = (each(problem.network, problem.x, problem.y).item() for each in (twin, own))
    assert found == expected


@EVERY_PENALTY
def test_an_empty_mini_batch_costs_nothing(penalty):
    problem = make_problem()
    own = PENALTIES[penalty](problem.baselines())
    assert own(problem.network, problem.x[:0], problem.y[:0]).item() == 0


@EVERY_PENALTY
def test_autocast_and_a_compiled_module(penalty):
    problem = make_problem()
    network, x = copy.deepcopy(problem.network).float(), problem.x.float()
    expected = PENALTIES[penalty](problem.baselines(), random_state=0)(network, x, problem.y)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = PENALTIES[penalty](problem.baselines(), random_state=0)(network, x, problem.y)
        loss = binary_cross_entropy_with_logits(network(x).float(), problem.y.float()) + found.float()
    loss.backward()
    assert found.item() == pytest.approx(expected.item(), rel=0.1)
    compiled = torch.compile(network, backend="eager")
    again = PENALTIES[penalty](problem.baselines(), random_state=0)(compiled, x, problem.y)
    assert again.item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize(
    ("options", "warned"),
    [({}, False), ({"rule": "midpoint"}, True), ({"attribution": "gradient_times_input"}, True)],
)
def test_kinks_are_warned_of_unless_secants_know_of_them(options, warned, recwarn):
    problem = make_problem(activation="relu")
    penalty = gcig.GCIGPenalty(problem.baselines(), **options)
    for _ in range(2):
        penalty(problem.network, problem.x, problem.y)
    assert [each.category for each in recwarn] == [KinkWarning] * warned


# --- errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *itertools.product(["rows"], [0, "some", 1.5, True]),
        *itertools.product(["n_steps"], [0, "many", 20_000]),
        *itertools.product(["random_state"], [-1, 1.5]),
        *itertools.product(["norm"], ["l3"]),
        *itertools.product(["label_weights"], ["both"]),
        *itertools.product(["eps"], [0.0, math.nan]),
        *itertools.product(["scale"], [0.0, -1, math.inf]),
        *itertools.product(["standards_weight"], [-1.0, "1"]),
    ],
)
def test_options_out_of_range_are_refused_by_name(option, value):
    kind = gcig.ReasonGapPenalty if option in ("scale", "standards_weight") else gcig.GCIGPenalty
    with pytest.raises(ValueError, match=option):
        kind(make_problem().baselines(), **{option: value})


@pytest.mark.parametrize(
    ("origin", "message"),
    [
        (torch.arange(7), r"origin must have the shape of a row, \(4,\).*not \(7,\)"),
        (torch.arange(4.0), "origin.*integers from 0"),
        (torch.arange(4) - 1, "origin.*integers from 0"),
    ],
)
def test_impossible_groups_of_inputs_are_refused(origin, message):
    with pytest.raises(ValueError, match=message):
        gcig.GCIGPenalty(make_problem().baselines(), origin=origin)


@EVERY_PENALTY
@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"y": torch.zeros(5).long()}, "y"),
        ({"y": torch.full((48,), 2)}, "y"),
        ({"y": torch.full((48,), -1)}, "y"),
        ({"y": torch.full((48,), 0.5)}, "y"),
        ({"x": torch.zeros(48, 3)}, "x"),
        ({"sample_weight": torch.ones(3)}, "sample_weight"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_name(penalty, change, name):
    problem = make_problem()
    with pytest.raises(ValueError, match=rf"\b{name}\b"):
        PENALTIES[penalty](problem.baselines())(problem.network, **{"x": problem.x, "y": problem.y, **change})


@pytest.mark.parametrize("activation", ["silu", "relu"])
@EVERY_PENALTY
def test_two_logits_of_two_classes_need_the_task_of_classes(penalty, activation):
    problem = make_problem()
    network = make_problem("classes", activation=activation).network
    with pytest.raises(ValueError, match=r"gives 3 outputs.*'classes'"):
        PENALTIES[penalty](problem.baselines())(network, problem.x, problem.y)
    classes = Classes.of(problem.y, n_classes=3)
    assert PENALTIES[penalty](problem.baselines(task=classes))(network, problem.x, problem.y).isfinite()


@pytest.fixture
def one_process(tmp_path):
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@EVERY_PENALTY
@pytest.mark.usefixtures("one_process")
def test_wrapped_modules_are_refused(penalty):
    problem = make_problem()
    wrapped = nn.parallel.DistributedDataParallel(problem.network)
    with pytest.raises(ValueError, match=r"DistributedDataParallel.*own_loop"):
        PENALTIES[penalty](problem.baselines())(wrapped, problem.x, problem.y)
