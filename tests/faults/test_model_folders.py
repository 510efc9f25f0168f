"""Faults 29 and 33: model folders that someone edited, with checksums that are right."""

import json
import pickle
import random
import warnings

import numpy as np
import pytest
import torch

import gcig
from example_tables import QUICK, make_loans
from gcig.cli import main
from gcig.methods.registry import METHODS
from gcig.persistence import PersistenceError, load_folder
from support.model_mutations import Bomb, mutations, replace_tensors, replaced, tensors_file, write_mutation

LOANS = make_loans(200)
LABELS = {"binary": LOANS.y, "classes": LOANS.X["job"], "number": LOANS.X["age"].astype(float)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of a saved model of a method, made once."""
    made = {}

    def get(key, task="binary"):
        if (key, task) not in made:
            made[key, task] = tmp_path_factory.mktemp("models") / key
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = METHODS[key].estimator_for(task)(**QUICK)
                model.fit(LOANS.X, LABELS[task], **LOANS.groups).save(made[key, task])
        return made[key, task]

    return get


@pytest.mark.parametrize("key", ["unconstrained", "dir", "hardt"])
@pytest.mark.parametrize("spoil", [np.nan, np.inf, -np.inf])
def test_fault_33_weights_that_are_not_finite(folder, tmp_path, key, spoil):
    document, tensors = load_folder(folder(key))
    name = next(name for name in tensors if name.startswith("network."))
    spoiled = tensors[name].clone()
    spoiled.view(-1)[0] = spoil
    write_mutation(tmp_path / "m", document, {**tensors, name: spoiled})
    with pytest.raises(PersistenceError, match="weights of the network are not finite"):
        gcig.load(tmp_path / "m")


def test_fault_33_statistics_of_batch_norm_that_are_not_finite(tmp_path):
    own = torch.nn.Sequential(torch.nn.LazyBatchNorm1d(), torch.nn.LazyLinear(1))
    own(torch.zeros(2, LOANS.numbers.shape[1]))
    model = METHODS["unconstrained"].estimator(**QUICK, module=own, preprocessing="none")
    model.fit(LOANS.numbers, LOANS.y, **LOANS.groups).save(tmp_path / "m")
    document, tensors = load_folder(tmp_path / "m")
    tensors["network.0.running_mean"][0] = np.nan
    write_mutation(tmp_path / "m", document, tensors)
    with pytest.raises(PersistenceError, match="weights of the network are not finite"):
        gcig.load(tmp_path / "m", module=own)


@pytest.mark.parametrize("value", [{"float": "nan"}, {"float": "inf"}, "nan", 5, -1, None, 10**400])
def test_fault_33_thresholds_outside_of_the_unit_interval(folder, tmp_path, capsys, value):
    document, tensors = load_folder(folder("unconstrained"))
    write_mutation(tmp_path / "m", replaced(document, ("learned", "threshold_"), value), tensors)
    with pytest.raises(PersistenceError):
        gcig.load(tmp_path / "m")
    table = tmp_path / "loans.csv"
    LOANS.X.to_csv(table, index=False)
    assert main(["predict", str(tmp_path / "m"), str(table)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "does not hold a model of the method 'unconstrained'" in captured.err


def test_fault_33_weights_so_large_that_scores_are_no_numbers(folder, tmp_path, capsys):
    document, tensors = load_folder(folder("unconstrained"))
    large = {name: torch.full_like(each, -3e38) for name, each in tensors.items() if ".weight" in name}
    write_mutation(tmp_path / "m", document, {**tensors, **large})
    LOANS.X.to_csv(tmp_path / "loans.csv", index=False)
    assert main(["predict", str(tmp_path / "m"), str(tmp_path / "loans.csv")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "are NaN, because its weights or the entries" in captured.err
    own = torch.nn.Linear(LOANS.numbers.shape[1], 1)
    torch.nn.init.constant_(own.bias, np.nan)
    with pytest.raises(gcig.InputError, match="200 of 200 outputs of the Linear are NaN"):
        gcig.evaluate(own, LOANS.numbers, LOANS.y, **LOANS.groups)


def check_edited(tmp_path, sample):
    """Load each edited folder: the library's own error, or predictions that are probabilities or numbers."""
    loaded = 0
    for what, document, tensors in sample:
        try:
            write_mutation(tmp_path / "m", document, tensors)
            model = gcig.load(tmp_path / "m")
        except PersistenceError:
            continue
        model.check_parameters()
        try:
            decisions = model.predict(LOANS.X, **LOANS.groups)
            if hasattr(model, "classes_"):
                assert np.isfinite(model.predict_proba(LOANS.X, **LOANS.groups)).all(), what
        except gcig.InputError:
            continue
        loaded += 1
        if hasattr(model, "classes_"):
            assert set(decisions.tolist()) <= set(model.classes_.tolist()), what
        else:
            assert np.isfinite(decisions).all(), what
        if hasattr(model, "expected_predictions"):
            expected = model.expected_predictions(LOANS.X, **LOANS.groups)
            assert ((expected >= 0) & (expected <= 1)).all(), what
    return loaded


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("key", "task"), [("fairx", "binary"), ("fairx", "classes"), ("unconstrained", "number")]
)
def test_fault_33_edited_folders_are_refused_or_predict_sensibly(folder, tmp_path, key, task):
    everything = [each for each in mutations(folder(key, task)) if "'history_'" not in each[0]]
    sample = random.Random(0).sample(everything, 80)
    assert check_edited(tmp_path, sample) < len(sample) / 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", list(METHODS))
@pytest.mark.parametrize("task", LABELS)
def test_fault_33_all_edited_folders(folder, tmp_path, key, task):
    if task not in METHODS[key].tasks:
        pytest.skip("the method is not defined for the task")
    everything = [each for each in mutations(folder(key, task)) if "'history_'" not in each[0]]
    check_edited(tmp_path, random.Random(1).sample(everything, min(len(everything), 1500)))


@pytest.mark.parametrize("of_tensors", [False, True])
def test_fault_29_a_pickle_in_the_place_of_a_file(folder, tmp_path, of_tensors):
    proof = tmp_path / "it ran"
    document, tensors = load_folder(folder("unconstrained"))
    write_mutation(tmp_path / "m", document, tensors)
    path = tensors_file(tmp_path / "m") if of_tensors else tmp_path / "m" / "model.json"
    path.write_bytes(pickle.dumps(Bomb(proof)))
    with pytest.raises(PersistenceError, match=path.name):
        gcig.load(tmp_path / "m")
    if of_tensors:
        replace_tensors(tmp_path / "m", path.read_bytes())
        with pytest.raises(PersistenceError, match="is not a safetensors file"):
            gcig.load(tmp_path / "m")
    assert not proof.exists()


def test_fault_29_an_edited_manifest(folder, tmp_path):
    document, tensors = load_folder(folder("unconstrained"))
    write_mutation(tmp_path / "m", document, tensors)
    path = tmp_path / "m" / "model.json"
    manifest = json.loads(path.read_text())
    manifest["tensors"]["size"] += 1
    path.write_text(json.dumps(manifest))
    with pytest.raises(PersistenceError, match="was changed after it was written"):
        gcig.load(tmp_path / "m")


@pytest.mark.parametrize("of_tensors", [False, True])
def test_fault_29_files_of_ten_gigabytes_are_not_read(folder, tmp_path, of_tensors):
    document, tensors = load_folder(folder("unconstrained"))
    write_mutation(tmp_path / "m", document, tensors)
    path = tensors_file(tmp_path / "m") if of_tensors else tmp_path / "m" / "model.json"
    with open(path, "r+b") as file:
        file.truncate(10 * 2**30)  # sparse: it occupies no disk
    with pytest.raises(PersistenceError, match="bytes; at most"):
        gcig.load(tmp_path / "m")
