"""Faults 30, 38, 40 and 41, and fingerprints: names and files that pretend to be something else."""

import contextlib
import os
import pickle
import shutil
import socket
import stat
import subprocess
import sys
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import gcig
from example_tables import QUICK, ROLE_FLAGS, make_loans
from gcig.auditing.subject import hash_model
from gcig.methods.registry import METHODS
from gcig.persistence import PersistenceError
from support.model_mutations import Bomb

LOANS = make_loans(200)
ESCAPE = "\x1b]0;owned\x07\x1b[31m"


# --- 38: a suffix that lies, a name that looks like a URL ---------------------------------------------


@contextlib.contextmanager
def no_network():
    """Let every connection, datagram and look-up of a name fail, and record that it was tried."""
    tried = []

    def refuse(*given, **_):
        tried.append(given)
        raise OSError("the network is blocked")

    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex", "sendto"):
            patch.setattr(socket.socket, name, refuse)
        for name in ("getaddrinfo", "gethostbyname", "create_connection"):
            patch.setattr(socket, name, refuse)
        yield tried


def test_fault_38_a_suffix_that_lies(shell, model, loans_csv, tmp_path):
    expected = shell("predict", model, loans_csv)[:2]
    for suffix in ("gz", "xz", "bz2", "zip", "zst", "tar", "json", "xlsx", "txt"):
        path = tmp_path / f"loans.csv.{suffix}"
        shutil.copy(loans_csv, path)
        assert shell("predict", model, path)[:2] == expected, suffix


@pytest.mark.parametrize("name", ["http:/example.org/x.csv", "s3:/bucket/x.csv", "https:/x.parquet"])
def test_fault_38_a_name_that_looks_like_a_url(shell, model, loans, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    with no_network() as tried:
        code, _, err = shell("predict", model, name)
        assert code == 2
        assert "There is no file" in err
        path.parent.mkdir(parents=True)
        loans.to_parquet(path) if name.endswith("parquet") else loans.to_csv(path, index=False)
        assert shell("predict", model, name)[0] == 0
    assert tried == []


@pytest.mark.parametrize("content", [b"\xfd7zXZ\0rest", b"BZh91AY", b"\x28\xb5\x2f\xfd\0", b"PK\x03\x04"])
def test_fault_38_other_formats_are_named(shell, model, tmp_path, content):
    (tmp_path / "table.csv").write_bytes(content)
    code, _, err = shell("predict", model, tmp_path / "table.csv")
    assert code == 2
    assert "an xz file" in err or "a bzip2 file" in err or "a zstandard file" in err or "zip or Excel" in err


@pytest.mark.parametrize("mark", ["§", "\uff0c", ";;", "\n"])
def test_fault_38_a_separator_outside_of_ascii(shell, model, loans_csv, mark):
    code, _, err = shell("predict", model, loans_csv, "--sep", mark)
    assert code == 2
    assert "--sep must be one ASCII character" in err


@pytest.mark.parametrize("entry", [[1, 2], {"a": 1}, b"bytes"])
@pytest.mark.parametrize("command", ["train", "predict", "audit"])
def test_fault_38_parquet_of_lists_and_records(shell, model, loans, tmp_path, entry, command):
    path = tmp_path / "t.parquet"
    loans.assign(job=[entry] * len(loans)).to_parquet(path)
    arguments = {
        "train": ["train", path, *ROLE_FLAGS, "--drop", "id", "--out", tmp_path / "m"],
        "predict": ["predict", model, path],
        "audit": ["audit", model, path, *ROLE_FLAGS],
    }[command]
    code, out, err = shell(*arguments)
    assert (code, out) == (2, "")
    assert "Column 'job' of" in err
    assert "entries must be numbers, text, booleans or dates" in err


# --- 40: a configuration file that grants trust ------------------------------------------------------


def test_fault_40_a_configuration_file_cannot_grant_trust(shell, loans_csv, tmp_path):
    proof = tmp_path / "it ran"
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(Bomb(proof)))
    (tmp_path / "audit.toml").write_text('trust-pickle = true\ntarget = "approved"\n')
    arguments = ["audit", tmp_path / "model.pkl", loans_csv, *ROLE_FLAGS]
    code, _, err = shell(*arguments, "--config", tmp_path / "audit.toml")
    assert code == 2
    assert "'trust-pickle' can only be given on the command line" in err
    code, _, err = shell(*arguments)
    assert code == 2
    assert "--trust-pickle must be set" in err
    assert not proof.exists()
    shell(*arguments, "--trust-pickle")
    assert proof.exists()  # the flag does what it says


# --- 30, 41: names -----------------------------------------------------------------------------------


def hostile_table(text, n=120):
    """Return a table in which every name and a category hold a text."""
    rng = np.random.default_rng(0)
    income = rng.normal(size=n)
    return pd.DataFrame(
        {
            f"income{text}": income.round(3),
            f"job{text}": np.array([f"nurse{text}", "clerk"])[np.arange(n) % 3 % 2],
            "sex": np.array([f"f{text}", "m"])[np.arange(n) % 2],
            "approved": np.where(income + rng.normal(0, 0.3, n) > 0, "yes", "no"),
        }
    )


def test_fault_41_escape_sequences_never_reach_the_terminal(shell, tmp_path):
    path = tmp_path / "t.csv"
    hostile_table(ESCAPE).to_csv(path, index=False)
    out = ["--out", tmp_path / "m", "--method", "unconstrained", "--epochs", "1"]
    outputs = [shell("train", path, *ROLE_FLAGS, *out)]
    outputs += [shell("audit", tmp_path / "m", path, *ROLE_FLAGS, "--max-gcig", "0.001")]
    outputs += [shell("explain", tmp_path / "m", path, *ROLE_FLAGS, "--row", "1")]
    run = ["--methods", "unconstrained", "--folds", "2", "--jobs", "1", "--out", tmp_path / "run"]
    outputs += [shell("compare", path, *ROLE_FLAGS, *run)]
    for code, printed, err in outputs:
        assert code in (0, 1, 3), err
        assert "\x1b" not in printed + err
        assert "\x07" not in printed + err
    assert "f?]0;owned??[31m" in outputs[1][1]  # the group is named, without its escapes


def test_fault_30_dots_in_names_stay_in_the_folder(tmp_path):
    with pytest.raises(PersistenceError, match="no saved model"):
        gcig.load(tmp_path / ".." / "nowhere")
    from gcig.persistence import save_folder

    for name in ("../escaped", "a/b", "..", "/etc/passwd"):
        with pytest.raises(PersistenceError, match="a tensor may not be called"):
            save_folder(tmp_path / "m", {}, {name: np.ones(1)}, kind="example")
    assert os.listdir(tmp_path) == []


FORMULA = "=HYPERLINK(1)"


def test_fault_30_formulas_in_tables(shell, tmp_path):
    path = tmp_path / "t.csv"
    hostile_table("").assign(approved=lambda t: t["approved"].replace("yes", FORMULA)).to_csv(
        path, index=False
    )
    roles = ["--target", "approved", "--positive", FORMULA, "--sensitive", "sex"]
    out = ["--out", tmp_path / "m", "--method", "unconstrained", "--epochs", "20", "--save-test"]
    _, _, err = shell("train", path, *roles, *out, tmp_path / "test.csv", "-q")
    assert "'approved' has" in err
    assert "evaluate as formulas" in err
    _, printed, _ = shell("predict", tmp_path / "m", path)
    decisions = {line.split(",", 1)[1] for line in printed.splitlines()[1:]}
    assert decisions == {"no", f"'{FORMULA}"}  # an apostrophe makes it text in a spreadsheet


# --- the files of a model ------------------------------------------------------------------------------


def test_files_of_a_model_are_for_their_owner_only(tmp_path):
    model = METHODS["unconstrained"].estimator(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups)
    model.save(tmp_path / "m")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "m").iterdir()}
    assert modes == {0o600}
    assert stat.S_IMODE((tmp_path / "m").stat().st_mode) == 0o700


def test_pages_about_single_people_are_for_their_owner_only(tmp_path):
    model = METHODS["unconstrained"].estimator(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups)
    page = tmp_path / "person.html"
    gcig.explain(model, LOANS.X[:1]).to_html(page)
    assert stat.S_IMODE(page.stat().st_mode) == 0o600


def test_fingerprints_are_equal_in_memory_and_after_every_load(tmp_path):
    model = METHODS["hardt"].estimator(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups)
    model.save(tmp_path / "m")
    first, second = (gcig.load(tmp_path / "m") for _ in range(2))
    assert hash_model(model) == hash_model(first) == hash_model(second)
    other = METHODS["hardt"].estimator(**{**QUICK, "random_state": 1})
    assert hash_model(other.fit(LOANS.X, LOANS.y, **LOANS.groups)) != hash_model(model)


@pytest.mark.slow
def test_fingerprints_are_equal_in_every_process(tmp_path):
    model = METHODS["unconstrained"].estimator(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups)
    model.save(tmp_path / "m")
    joblib.dump(LogisticRegression().fit(LOANS.numbers, LOANS.y), tmp_path / "other.joblib")
    code = (
        "import sys, joblib, gcig\nfrom gcig.auditing.subject import hash_model\n"
        "print(hash_model(gcig.load(sys.argv[1])), hash_model(joblib.load(sys.argv[2])))"
    )
    found = set()
    for seed in ("0", "1", "2"):
        command = [sys.executable, "-c", code, str(tmp_path / "m"), str(tmp_path / "other.joblib")]
        env = {**os.environ, "PYTHONHASHSEED": seed}
        found.add(subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout)
    assert len(found) == 1
    assert found.pop().split()[0] == hash_model(model)


# --- no network ------------------------------------------------------------------------------------------


def test_no_network_at_fit_evaluate_audit_and_page(tmp_path):
    with no_network() as tried, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = gcig.FairXClassifier(**QUICK).fit(LOANS.X, LOANS.y, **LOANS.groups)
        found = gcig.audit(model, LOANS.X, LOANS.y, **LOANS.groups, n_bootstrap=20)
        page = found.to_html()
        model.save(tmp_path / "m")
        gcig.load(tmp_path / "m").explain(LOANS.X)
    assert tried == []
    assert "http-equiv" in page
    assert "Content-Security-Policy" in page


def test_no_network_at_import():
    code = (
        "import socket\n"
        "def refuse(*_): raise SystemExit('the network was used')\n"
        "socket.socket.connect = refuse; socket.getaddrinfo = refuse\n"
        "import gcig\nfor name in dir(gcig): getattr(gcig, name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
