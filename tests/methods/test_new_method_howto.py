"""The page about adding a method does what it says."""

import importlib
import re
import sys
import textwrap
from pathlib import Path

import pytest
import torch

import gcig
from gcig.methods import METHODS, registry

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "new_method.rst"
BLOCK = re.compile(r"^\.\. code-block:: (\w+)\n((?:   :.*\n)*)\n((?:   .*\n|\n)+)", re.MULTILINE)


def blocks(kind):
    """Options and code of the page's blocks of one kind."""
    found = BLOCK.findall(PAGE.read_text("utf-8"))
    return [(options, textwrap.dedent(code)) for language, options, code in found if language == kind]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in, from which modules can be imported; the registry is put back afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(METHODS, "data", dict(METHODS.data))
    monkeypatch.delitem(sys.modules, "reweighing", raising=False)
    yield tmp_path
    sys.modules.pop("reweighing", None)


def run(code):
    namespace = {"__name__": "howto"}
    exec(compile(code, PAGE.name, "exec"), namespace)
    return namespace


def test_the_page_can_be_followed_from_top_to_bottom(folder, capsys):
    (options, module), (_, use), (_, own_step) = blocks("python")
    assert ":caption: reweighing.py" in options
    (folder / "reweighing.py").write_text(module, "utf-8")
    model = run(use)["model"]
    assert type(model).__name__ == "ReweighingClassifier"
    assert METHODS["reweighing"].label == "Reweighing"
    assert (folder / "model").is_dir()
    model = run(own_step)["model"]
    assert model.history_["unfairness"].notna().all()
    assert capsys.readouterr().out.count("\n") > 2


def test_reweighing_makes_label_and_group_independent(folder):
    (_, module), *_ = blocks("python")
    (folder / "reweighing.py").write_text(module, "utf-8")
    reweighing = importlib.import_module("reweighing")
    data = gcig.load_dataset("german")
    labels, groups = (
        torch.tensor(codes.astype("int64").to_numpy())
        for codes in (data.y, data.sensitive_features == "male")
    )
    weights = reweighing.independent_weights(labels, groups, 2)[labels, groups]
    rates = [
        float(weights[(groups == g) & (labels == 1)].sum() / weights[groups == g].sum()) for g in range(2)
    ]
    assert rates[0] == pytest.approx(rates[1], rel=1e-5)
    assert rates[0] == pytest.approx(data.y.mean(), rel=1e-5)


def test_the_page_uses_public_names_only():
    code = "".join(code for _, code in blocks("python"))
    assert not re.findall(r"(?<![\w_])_[a-z]\w*|\._\w+", code)


def test_the_line_of_the_registry_works():
    ((_, line),) = blocks("text")
    (method,) = eval(line, {"_own": registry._own})
    assert (method.key, method.label, method.tasks) == ("reweighing", "Reweighing", ("binary", "classes"))
    assert set(method.locations.values()) == {"gcig.methods.reweighing:ReweighingClassifier"}
