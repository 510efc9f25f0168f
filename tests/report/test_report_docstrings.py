import doctest
import importlib
import pkgutil

import pytest

import gcig.report

MODULES = [name for _, name, _ in pkgutil.walk_packages(gcig.report.__path__, "gcig.report.")]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_hold(name, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    if ".displays" in name:
        pytest.importorskip("matplotlib", reason="the displays draw with matplotlib (gcig[plot])").use("agg")
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0


def test_there_are_modules_to_look_at():
    assert "gcig.report.charts.trade_off" in MODULES
