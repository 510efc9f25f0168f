"""Faults 29 and 33: model folders that someone edited, with checksums that are right."""

import json
import pickle
import random
import warnings

import numpy as np
import pytest
import torch

import gcig
from gcig.cli import main
from gcig.methods.registry import METHODS
from gcig.persistence import PersistenceError, load_folder
from support.model_mutations import Bomb, mutations, replaced, seal, write_mutation
from tables import QUICK, make_loans

LOANS = make_loans(200)
REFUSED = (gcig.InputError, PersistenceError)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of a saved model of a method, made once."""
    made = {}

    def get(key):
        if key not in made:
            made[key] = tmp_path_factory.mktemp("models") / key
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                METHODS[key].estimator(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups).save(made[key])
        return made[key]

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
    write_mutation(tmp_path / "m", replaced(document, ("threshold",), value), tensors)
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


def check_edited(folder, tmp_path, key, sample):
    """Load each edited folder: the library's own errors, or predictions that are probabilities."""
    loaded = 0
    for what, document, tensors in sample:
        try:
            write_mutation(tmp_path / "m", document, tensors)
        except PersistenceError:
            continue
        try:
            model = gcig.load(tmp_path / "m")
            model.check_parameters()
            probability = model.predict_proba(LOANS.X, **LOANS.groups)
            decisions = model.predict(LOANS.X, **LOANS.groups)
        except REFUSED:
            continue
        loaded += 1
        assert np.isfinite(probability).all(), what
        assert set(decisions.tolist()) <= set(model.classes_.tolist()), what
        if hasattr(model, "expected_predictions"):
            expected = model.expected_predictions(LOANS.X, **LOANS.groups)
            assert ((expected >= 0) & (expected <= 1)).all(), what
    return loaded


@pytest.mark.filterwarnings("ignore")
def test_fault_33_edited_folders_are_refused_or_predict_probabilities(folder, tmp_path):
    everything = [each for each in mutations(folder("hardt")) if "'history_'" not in each[0]]
    sample = random.Random(0).sample(everything, 120)
    assert check_edited(folder, tmp_path, "hardt", sample) < len(sample) / 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", list(METHODS))
def test_fault_33_all_edited_folders(folder, tmp_path, key):
    everything = [each for each in mutations(folder(key)) if "'history_'" not in each[0]]
    sample = random.Random(1).sample(everything, min(len(everything), 1500))
    check_edited(folder, tmp_path, key, sample)


@pytest.mark.parametrize("name", ["tensors.safetensors", "model.json", "manifest.json"])
def test_fault_29_a_pickle_in_the_place_of_a_file(folder, tmp_path, name):
    proof = tmp_path / "it ran"
    document, tensors = load_folder(folder("unconstrained"))
    write_mutation(tmp_path / "m", document, tensors)
    (tmp_path / "m" / name).write_bytes(pickle.dumps(Bomb(proof)))
    with pytest.raises(PersistenceError):
        gcig.load(tmp_path / "m")
    if name != "manifest.json":
        seal(tmp_path / "m")
        with pytest.raises(PersistenceError, match=f"{name} is not"):
            gcig.load(tmp_path / "m")
    assert not proof.exists()


def test_fault_29_an_edited_manifest(folder, tmp_path):
    document, tensors = load_folder(folder("unconstrained"))
    write_mutation(tmp_path / "m", document, tensors)
    path = tmp_path / "m" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"]["model.json"]["size"] += 1
    path.write_text(json.dumps(manifest))
    with pytest.raises(PersistenceError, match="was changed after it was written"):
        gcig.load(tmp_path / "m")


@pytest.mark.parametrize("name", ["manifest.json", "model.json", "tensors.safetensors"])
def test_fault_29_files_of_ten_gigabytes_are_not_read(folder, tmp_path, name):
    document, tensors = load_folder(folder("unconstrained"))
    write_mutation(tmp_path / "m", document, tensors)
    with open(tmp_path / "m" / name, "r+b") as file:
        file.truncate(10 * 2**30)  # sparse: it occupies no disk
    with pytest.raises(PersistenceError, match="bytes; at most"):
        gcig.load(tmp_path / "m")
