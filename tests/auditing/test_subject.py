import pickle

import joblib
import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import gcig
from example_tables import make_numeric_loans
from gcig._arguments import InputError
from gcig._files import hash_file
from gcig.auditing import audit, open_model
from gcig.auditing.subject import hash_model, hash_table

TABLE = make_numeric_loans(200)
X, Y = TABLE[["income", "debt", "age", "noise"]], TABLE["approved"]


def test_a_gcig_folder_is_opened_and_named(tmp_path) -> None:
    model = gcig.FairXClassifier(max_epochs=4, hidden_sizes=(4,), repair="always", random_state=0)
    model.fit(X, Y, sensitive_features=TABLE["sex"]).save(tmp_path / "model")
    opened = open_model(tmp_path / "model")
    np.testing.assert_array_equal(opened.predict(X), model.predict(X))
    found = audit(tmp_path / "model", X, Y, sensitive_features=TABLE["sex"], n_bootstrap=20)
    assert found.record.subject.model_name == "model"
    assert found.record.subject.model_sha256 == hash_model(model)
    assert found.record.subject.reference.endswith("the model's training rows")


@pytest.mark.parametrize("suffix", [".pkl", ".pickle", ".joblib"])
def test_pickles_are_opened_when_they_are_trusted_only(tmp_path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    model = LogisticRegression().fit(X, Y)
    joblib.dump(model, path)
    with pytest.raises(InputError, match=r"trust_pickle must be set to open .*runs the program"):
        open_model(path)
    with pytest.raises(InputError, match="trust_pickle"):
        audit(path, X, Y, sensitive_features=TABLE["sex"])
    np.testing.assert_array_equal(open_model(path, trust_pickle=True).coef_, model.coef_)


def test_a_plain_pickle_is_opened_too(tmp_path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(LogisticRegression().fit(X, Y)))
    assert open_model(path, trust_pickle=True).classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize("suffix", [".pt2", ".pt"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_programs_are_audited_when_they_are_trusted(tmp_path, suffix: str) -> None:
    path = tmp_path / f"model{suffix}"
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 3), nn.SiLU(), nn.Linear(3, 1))
    rows = X.to_numpy(np.float32)
    if suffix == ".pt":
        torch.jit.script(module).save(path)
    else:
        free = ({0: torch.export.Dim.AUTO},)
        torch.export.save(torch.export.export(module, (torch.zeros(2, 4),), dynamic_shapes=free), path)
    with pytest.raises(InputError, match="trust_pickle"):
        open_model(path)
    opened = open_model(path, trust_pickle=True)
    options = {"sensitive_features": TABLE["sex"], "n_bootstrap": 10}
    found = audit(opened, rows, Y == "yes", **options).evaluation
    expected = audit(module, rows, Y == "yes", **options).evaluation
    assert found.gcig == pytest.approx(expected.gcig, rel=1e-3)


def test_unopenable_files_name_the_reason(tmp_path) -> None:
    with pytest.raises(InputError, match="no model"):
        open_model(tmp_path / "none.onnx")
    (tmp_path / "model.h5").write_bytes(b"x")
    with pytest.raises(InputError, match=r"Choose a gcig model folder, an .onnx or .skops file"):
        open_model(tmp_path / "model.h5")
    torch.save(nn.Linear(4, 1).state_dict(), tmp_path / "weights.pt")
    with pytest.raises(InputError, match=r"weights.pt is a file of torch.save.*torch.export.save"):
        open_model(tmp_path / "weights.pt")
    (tmp_path / "torn.pkl").write_bytes(b"\x80\x05nothing")
    with pytest.raises(InputError, match=r"torn.pkl could not be opened as pickle"):
        open_model(tmp_path / "torn.pkl", trust_pickle=True)


def test_onnx_needs_no_trust(tmp_path) -> None:
    pytest.importorskip("onnxruntime")
    skl2onnx = pytest.importorskip("skl2onnx")
    model = LogisticRegression().fit(X.to_numpy(np.float32), Y == "yes")
    kind = [("rows", skl2onnx.common.data_types.FloatTensorType([None, 4]))]
    content = skl2onnx.convert_sklearn(model, initial_types=kind, options={"zipmap": False})
    (tmp_path / "model.onnx").write_bytes(content.SerializeToString())
    found = audit(
        tmp_path / "model.onnx",
        X.astype(np.float32),
        (Y == "yes").astype(int),
        sensitive_features=TABLE["sex"],
        n_bootstrap=20,
    )
    assert found.record.subject.model_kind == "ONNX model"
    assert found.record.subject.model_sha256 == hash_file(tmp_path / "model.onnx")


class TestHashes:
    def test_modules_by_their_tensors(self) -> None:
        torch.manual_seed(0)
        first, second = nn.Linear(2, 1), nn.Linear(2, 1)
        assert hash_model(first) != hash_model(second)
        second.load_state_dict(first.state_dict())
        assert hash_model(first) == hash_model(second)

    def test_estimators_by_their_content(self) -> None:
        first = LogisticRegression().fit(X, Y)
        assert hash_model(first) == hash_model(first)
        assert hash_model(first) != hash_model(LogisticRegression(C=2).fit(X, Y))

    def test_functions_made_on_the_spot_have_none(self) -> None:
        assert hash_model(lambda rows: rows) is None

    def test_tables_by_values_names_labels_and_groups(self) -> None:
        codes = np.zeros(len(X), dtype=int)
        known = hash_table(X, codes, codes)
        assert known == hash_table(X.copy(), codes, codes)
        assert known == hash_table(X.set_axis(range(5, 205)), codes, codes)  # an index is no data
        assert known != hash_table(X.rename(columns={"age": "years"}), codes, codes)
        assert known != hash_table(X.iloc[::-1], codes, codes)
        assert known != hash_table(X, codes + 1, codes)
