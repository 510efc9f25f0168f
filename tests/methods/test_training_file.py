import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

import gcig
from gcig.methods import METHODS, training_file
from gcig.methods.training_file import RowBlocks
from gcig.methods.unconstrained import UnconstrainedClassifier

pytest.importorskip("pyarrow")
ROLES = {"target": "approved", "sensitive": "sex"}


def people(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n, p=[0.4, 0.6])
    income = rng.normal(size=n) + (sex == "m")
    debt = np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n))
    job = rng.choice(["clerk", "nurse", "smith"], n)
    owner = pd.Series(rng.random(n) < 0.5, dtype=object).where(rng.random(n) < 0.9, None)
    logit = 1.5 * income - np.nan_to_num(debt) + 0.8 * (job == "nurse") - 0.7
    frame = pd.DataFrame({"income": income, "debt": debt, "job": job, "owner": owner, "sex": sex})
    frame["approved"] = np.where(rng.logistic(size=n) < logit, "yes", "no")
    return frame.sort_values(["approved", "sex"], ignore_index=True)  # the worst order for blocks


@pytest.fixture
def small_parts(monkeypatch):
    """Read a few hundred rows at once, and train from blocks of about 300 rows."""
    monkeypatch.setattr(training_file, "_ROWS_AT_ONCE", 256)
    monkeypatch.setattr(training_file, "BLOCK_BYTES", 4 * 300 * 7)


def write(frame, path, **how):
    frame.to_parquet(path, index=False, **how)
    return path


def in_memory(model, frame):
    X = frame.drop(columns=["approved", "sex"])
    return model.fit(X, frame["approved"], sensitive_features=frame["sex"])


@pytest.mark.parametrize("format", ["parquet", "feather"])
def test_a_file_in_blocks_gives_encoder_baselines_and_columns_of_the_table(tmp_path, small_parts, format):
    frame = people()
    path = tmp_path / f"people.{format}"
    frame.to_feather(path) if format == "feather" else write(frame, path, row_group_size=700)
    model = UnconstrainedClassifier(max_epochs=1, random_state=0)
    model.fit_file(path, **ROLES, in_memory_bytes=0)
    whole = in_memory(UnconstrainedClassifier(max_epochs=1, random_state=0), frame)
    assert model.encoder_.encoded_names_ == whole.encoder_.encoded_names_
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.groups_ == ("f", "m")
    assert model.feature_names_in_.tolist() == ["income", "debt", "job", "owner"]
    np.testing.assert_allclose(model.baselines_, whole.baselines_, atol=1e-6)
    np.testing.assert_array_equal(model.blocks_, whole.blocks_)
    X = frame.drop(columns=["approved", "sex"])
    np.testing.assert_allclose(model.encode(X), whole.encode(X), atol=1e-6)


def test_training_in_blocks_is_reproducible_and_as_good_as_in_memory(tmp_path, small_parts):
    frame, test = people(), people(seed=1)
    path = write(frame, tmp_path / "people.parquet")
    X = test.drop(columns=["approved", "sex"])

    def auc(model):
        scores = model.decision_function(X)
        return roc_auc_score(test["approved"] == "yes", scores)

    blocks = UnconstrainedClassifier(max_epochs=8, random_state=0).fit_file(path, **ROLES, in_memory_bytes=0)
    again = UnconstrainedClassifier(max_epochs=8, random_state=0).fit_file(path, **ROLES, in_memory_bytes=0)
    whole = in_memory(UnconstrainedClassifier(max_epochs=8, random_state=0), frame)
    np.testing.assert_array_equal(blocks.decision_function(X), again.decision_function(X))
    assert auc(blocks) == pytest.approx(auc(whole), abs=0.005)


@pytest.mark.slow
def test_fairx_in_blocks_is_as_fair_as_in_memory(tmp_path, monkeypatch):
    data = gcig.load_dataset("adult")
    frame = data.X.drop(columns="sex").assign(sex=data.sensitive_features, approved=data.y)
    train, test = frame.iloc[:36_000], frame.iloc[36_000:]
    path = write(train.sort_values(["approved", "sex"]), tmp_path / "adult.parquet")
    monkeypatch.setattr(training_file, "BLOCK_BYTES", 4 * 100 * 4_000)  # about nine blocks
    X = test.drop(columns=["approved", "sex"])
    measured = {}
    for how in ("blocks", "memory"):
        model = gcig.FairXClassifier(random_state=0)
        if how == "blocks":
            model.fit_file(path, **ROLES, in_memory_bytes=0)
        else:
            in_memory(model, train)
        measured[how] = gcig.evaluate(model, X, test["approved"], sensitive_features=test["sex"])
    blocks, memory = measured["blocks"], measured["memory"]
    assert blocks.auc > memory.auc - 0.004
    assert blocks.gcig < memory.gcig + 0.02
    assert blocks.eo_gap < memory.eo_gap + 0.04


def test_rare_cells_are_among_the_references(tmp_path, small_parts):
    frame = people()
    rare = frame.index[(frame["approved"] == "yes") & (frame["sex"] == "f")][3:]
    frame = frame.drop(index=rare)  # three rows of this cell are left
    path = write(frame, tmp_path / "people.parquet")
    model = gcig.FairXClassifier(max_epochs=1, random_state=0, early_stopping=False)
    model.fit_file(path, **ROLES, in_memory_bytes=0)
    assert np.isfinite(model.baselines_).all()


def test_small_files_are_read_whole_and_rows_can_be_skipped(tmp_path, small_parts):
    frame = people(600)
    write(frame, tmp_path / "people.parquet")
    frame.to_csv(tmp_path / "people.csv", index=False)
    skipped = np.arange(0, 600, 3)
    kept = frame.drop(index=skipped)
    expected = in_memory(UnconstrainedClassifier(max_epochs=2, random_state=0), kept)
    for name in ("people.parquet", "people.csv"):
        model = UnconstrainedClassifier(max_epochs=2, random_state=0)
        model.fit_file(tmp_path / name, **ROLES, skip_rows=skipped)
        assert model.classes_.tolist() == ["no", "yes"]
        np.testing.assert_allclose(model.baselines_, expected.baselines_, atol=1e-6)
    model.fit_file(tmp_path / "people.parquet", **ROLES, skip_rows=skipped, in_memory_bytes=0)
    np.testing.assert_allclose(model.baselines_, expected.baselines_, atol=1e-6)


def test_the_positive_value_can_be_the_first(tmp_path, small_parts):
    path = write(people(600), tmp_path / "people.parquet")
    for in_memory_bytes in (0, 2**30):
        model = UnconstrainedClassifier(max_epochs=1, random_state=0)
        model.fit_file(path, **ROLES, positive="no", in_memory_bytes=in_memory_bytes)
        assert model.classes_.tolist() == ["yes", "no"]


def test_class_weights_act_in_blocks(tmp_path, small_parts):
    path = write(people(), tmp_path / "people.parquet")
    scores = {}
    for weight in (None, {"yes": 10.0}):
        model = UnconstrainedClassifier(max_epochs=3, random_state=0, class_weight=weight)
        model.fit_file(path, **ROLES, in_memory_bytes=0)
        scores[str(weight)] = model.decision_function(people().drop(columns=["approved", "sex"])).mean()
    low, high = scores.values()
    assert high > low + 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": "nothing"}, "has no such column"),
        ({"sensitive": "approved"}, "both target and sensitive"),
        ({"positive": "maybe"}, "Name one of them"),
        ({"drop": ["income", "debt", "job", "owner"]}, "no column is left"),
    ],
)
def test_roles_are_checked(tmp_path, small_parts, change, message):
    path = write(people(600), tmp_path / "people.parquet")
    with pytest.raises(gcig.InputError, match=message):
        UnconstrainedClassifier().fit_file(path, **{**ROLES, **change}, in_memory_bytes=0)


def test_missing_groups_and_empty_cells_are_named(tmp_path, small_parts):
    frame = people(600)
    missing = frame.assign(sex=frame["sex"].where(frame.index != 500))
    with pytest.raises(gcig.InputError, match=r"'sex' has missing values \(1 in a batch"):
        UnconstrainedClassifier().fit_file(write(missing, tmp_path / "m.parquet"), **ROLES, in_memory_bytes=0)
    empty = frame[(frame["approved"] == "no") | (frame["sex"] == "m")]
    with pytest.raises(gcig.InputError, match="'yes', group 'f'"):
        UnconstrainedClassifier().fit_file(write(empty, tmp_path / "e.parquet"), **ROLES, in_memory_bytes=0)


def test_what_cannot_be_streamed_is_refused(tmp_path):
    frame = people(600)
    path = write(frame, tmp_path / "people.parquet")
    frame.to_csv(tmp_path / "people.csv", index=False)
    with pytest.raises(gcig.InputError, match="Save it as Parquet"):
        UnconstrainedClassifier().fit_file(tmp_path / "people.csv", **ROLES, in_memory_bytes=0)
    for model in (METHODS["hardt"].estimator(), gcig.FairXClassifier(strategy="paper")):
        with pytest.raises(gcig.InputError, match="needs the whole table in memory"):
            model.fit_file(path, **ROLES, in_memory_bytes=0)


def test_a_full_disk_is_noticed_before_anything_is_written(tmp_path, monkeypatch):
    path = write(people(600), tmp_path / "people.parquet")
    usage = training_file.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(training_file.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(gcig.InputError, match=r"shuffled copy.*TMPDIR"):
        UnconstrainedClassifier().fit_file(path, **ROLES, in_memory_bytes=0)


def test_blocks_are_random_samples_and_hold_every_row_once(tmp_path):
    n = 20_000
    blocks = RowBlocks(tmp_path, n_rows=n, n_columns=1, n_groups=3, block_bytes=4 * 2_000, random_state=1)
    rows, labels, groups = np.arange(n, dtype=np.float32)[:, None], np.arange(n) // 10_000, np.arange(n) % 3
    with blocks:
        for part in np.array_split(np.arange(n), 7):
            blocks.add(rows[part], labels[part], groups[part])
    found = [block.rows for block in blocks.epoch()]
    assert len(found) == len(blocks) == 10
    assert sorted(torch.cat([each.inputs for each in found]).flatten().tolist()) == list(range(n))
    for each in found:
        number = each.inputs.flatten().long()
        assert torch.equal(each.labels, number // 10_000)
        assert torch.equal(each.groups, number % 3)
        assert abs(float(each.labels.double().mean()) - 0.5) < 4 * 0.5 / np.sqrt(len(each))


def test_an_epoch_of_a_large_table_goes_on_where_the_last_one_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(training_file, "EPOCH_ROWS", 350)
    blocks = RowBlocks(tmp_path, n_rows=1000, n_columns=1, n_groups=2, block_bytes=4 * 100)
    with blocks:
        blocks.add(np.arange(1000, dtype=np.float32)[:, None], np.zeros(1000, int), np.zeros(1000, int))
    seen = torch.cat([torch.cat([b.rows.inputs for b in blocks.epoch()]) for _ in range(3)])
    assert 1000 <= len(seen) < 1600
    assert len(seen.unique()) == 1000
