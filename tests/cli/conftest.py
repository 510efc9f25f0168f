"""A small file of loans, and a model that was trained on it from the shell."""

import io
import sys
import warnings

import pytest

from example_tables import QUICK_FLAGS, ROLE_FLAGS, make_raw_loans
from gcig.cli import main


@pytest.fixture(scope="session")
def loans():
    return make_raw_loans()


@pytest.fixture(scope="session")
def loans_csv(loans, tmp_path_factory):
    path = tmp_path_factory.mktemp("loans") / "loans.csv"
    loans.to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def model(loans_csv, tmp_path_factory):
    """The folder of a FairX model."""
    return _trained(loans_csv, tmp_path_factory.mktemp("models") / "fairx")


@pytest.fixture(scope="session")
def repaired(loans_csv, tmp_path_factory):
    """The folder of a model that needs groups to predict."""
    return _trained(loans_csv, tmp_path_factory.mktemp("models") / "dir", "--method", "dir")


def _trained(loans_csv, out, *more):
    drop = ["--drop", "id,race", "--out", str(out)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert main(["train", str(loans_csv), *ROLE_FLAGS, *drop, *QUICK_FLAGS, *more]) == 0
    return out


@pytest.fixture
def shell(capsys):
    """Run a command; its exit code, standard output and standard error."""

    def run(*arguments):
        capsys.readouterr()
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def standard_input(monkeypatch):
    """Give a command something to read from a pipe."""

    def give(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give
