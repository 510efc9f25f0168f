"""Fault 34: one object used by several threads, and the settings of the process after a fit."""

import copy
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from torch import nn

import gcig
from example_tables import QUICK, make_loans
from gcig.methods.registry import METHODS
from gcig.training.loop import DivergenceError

LOANS = make_loans(200)
ROWS = LOANS.numbers


def in_eight_threads(function, inputs):
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(function, inputs))


def small_network(*extra):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 16), nn.SiLU(), *extra, nn.Linear(16, 1))


# --- one penalty ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("extra", [(), (nn.Dropout(0.5),)], ids=["without dropout", "with dropout"])
def test_fault_34_one_penalty_in_eight_threads(extra, training):
    network = small_network(*extra).train(training)
    x = torch.tensor(ROWS, dtype=torch.float32)
    y, groups = torch.tensor(LOANS.y.to_numpy()), torch.tensor((LOANS.sex == "male").to_numpy(np.int64))
    penalty = gcig.GCIGPenalty(gcig.GroupBaselines.from_data(x, y, groups))
    batches = [slice(start, start + 40 + 8 * (start % 3)) for start in range(100)]

    def compute(rows):
        value = penalty(network, x[rows], y[rows])
        slopes = torch.autograd.grad(value, network.parameters(), allow_unused=True, materialize_grads=True)
        return value.item(), [each.sum().item() for each in slopes]

    alone = [compute(rows) for rows in batches]
    assert in_eight_threads(compute, batches) == alone
    assert all(part.training == training for part in network.modules())


# --- one fitted model -----------------------------------------------------------------------------------


@pytest.mark.parametrize("left_in_training", [False, True])
def test_fault_34_one_fitted_model_in_eight_threads(left_in_training):
    module = small_network(nn.BatchNorm1d(16), nn.Dropout(0.5))
    model = METHODS["unconstrained"].estimator(**QUICK, module=module, preprocessing="none")
    model.fit(ROWS, LOANS.y, **LOANS.groups)
    model.module_.train(left_in_training)
    parts = [slice(start, start + 50) for start in range(0, 150, 5)]

    def use(rows):
        explained = model.explain(ROWS[rows], LOANS.y[rows]).attributions
        return model.predict_proba(ROWS[rows]).tolist(), explained.tolist()

    assert torch.backends.cuda.flash_sdp_enabled()  # the kernels of attention, also of a CPU
    assert in_eight_threads(use, parts) == [use(rows) for rows in parts]
    assert torch.backends.cuda.flash_sdp_enabled()


def test_fault_34_one_fitted_fairx_evaluated_in_threads():
    model = gcig.FairXClassifier(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups)

    def use(_):
        found = gcig.evaluate(model, LOANS.X, LOANS.y, **LOANS.groups, n_bootstrap=0)
        return found.gcig, found.gcig_raw, found.auc

    assert len(set(in_eight_threads(use, range(8)))) == 1


# --- separate estimators --------------------------------------------------------------------------------


def fit(case):
    key, seed, dropout = case
    module = small_module(dropout) if dropout else None
    model = METHODS[key].estimator(
        **{**QUICK, "random_state": seed}, module=module, preprocessing="none" if dropout else "table"
    )
    X = ROWS if dropout else LOANS.X
    return model.fit(X, LOANS.y, **LOANS.groups).predict_proba(X, **LOANS.groups).tolist()


def small_module(dropout, made={}):  # noqa: B006 (made once, because its weights are random)
    if not made:
        made[0] = small_network(nn.Dropout(0.5)).float()
        made[1] = small_network(OwnNoise()).float()
    return copy.deepcopy(made[dropout - 1])


class OwnNoise(nn.Module):
    """A layer of a user's own that draws from torch's generator."""

    def forward(self, x):
        return x + 0.1 * torch.randn_like(x) if self.training else x


CASES = [("unconstrained", seed, 0) for seed in range(4)] + [("lagrangian", 0, 0), ("adversarial", 0, 0)]
CASES += [("unconstrained", seed, 1) for seed in range(4)] + [("unconstrained", seed, 2) for seed in range(4)]


@pytest.mark.filterwarnings("ignore")
def test_fault_34_fits_in_threads_equal_the_sequential_ones():
    alone = [fit(case) for case in CASES]
    state = torch.random.get_rng_state()
    found = in_eight_threads(fit, CASES)
    assert [case for case, one, other in zip(CASES, alone, found, strict=True) if one != other] == []
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_fault_34_fits_in_processes_equal_the_sequential_ones(method):
    alone = [fit(case) for case in CASES[:2]]
    with ProcessPoolExecutor(2, mp_context=get_context(method)) as pool:
        assert list(pool.map(fit, CASES[:2])) == alone


# --- the settings of the process ------------------------------------------------------------------------


@pytest.fixture
def settings():
    """Return the settings of the process that a fit may not change, and restore them."""
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    yield lambda: (
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.random.get_rng_state().tolist(),
        str(np.random.get_state()),  # noqa: NPY002 (the generator that a fit may not touch)
        torch.is_grad_enabled(),
    )
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "key", [key if key != "agarwal" else pytest.param(key, marks=pytest.mark.slow) for key in METHODS]
)
def test_fault_34_a_fit_leaves_the_settings_alone_and_does_not_depend_on_them(settings, key):
    model = METHODS[key].estimator(**QUICK)
    expected = model.fit(LOANS.X, LOANS.y, **LOANS.groups).predict_proba(LOANS.X, **LOANS.groups)
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(2)
    before = settings()
    with torch.no_grad():
        model.fit(LOANS.X, LOANS.y, **LOANS.groups)
    assert settings() == before
    np.testing.assert_array_equal(model.predict_proba(LOANS.X, **LOANS.groups), expected)


class Failing(nn.Module):
    """A network that fails in the middle of training."""

    def __init__(self, error):
        super().__init__()
        self.linear, self.error, self.calls = nn.Linear(3, 1), error, 0

    def forward(self, x):
        self.calls += self.training
        if self.calls > 5:
            raise self.error
        return self.linear(x)


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()])
def test_fault_34_a_fit_that_fails_restores_the_settings(settings, error):
    torch.set_num_threads(2)
    model = METHODS["unconstrained"].estimator(**QUICK, module=Failing(error), preprocessing="none")
    before = settings()
    with pytest.raises(type(error)):
        model.fit(ROWS, LOANS.y, **LOANS.groups)
    assert settings() == before
    assert not hasattr(model, "module_")


def test_fault_34_a_fit_that_diverges_restores_the_settings(settings):
    before = settings()
    model = METHODS["unconstrained"].estimator(**{**QUICK, "learning_rate": 1e30}, preprocessing="none")
    with pytest.raises(DivergenceError):
        model.fit(ROWS * 1e6, LOANS.y, **LOANS.groups)
    assert settings() == before


def test_fault_34_other_threads_keep_their_settings_during_a_fit(settings):
    """A thread that computes in float64 with its own random numbers is not disturbed by fits.

    Of networks without random layers: those draw from the process's generator, which is put back at the end.
    """
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(2)
    small_module(1)  # made before the watch, because its weights are random
    stop, seen = threading.Event(), []

    def watch():
        generator = torch.random.get_rng_state()
        while not stop.is_set():
            same = torch.equal(torch.random.get_rng_state(), generator)
            seen.append((torch.zeros(1).dtype, same))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        in_eight_threads(fit, [("unconstrained", seed, 0) for seed in range(8)])
    finally:
        stop.set()
        watcher.join()
    assert set(seen) == {(torch.float64, True)}
    with ThreadPoolExecutor(1) as fresh:
        assert fresh.submit(torch.get_num_threads).result() == 2
