"""Methods and datasets of other packages: a real package, installed by pip, and broken ones."""

import importlib
import subprocess
import sys
import textwrap
import warnings

import pytest

from gcig._plugins import PluginWarning
from gcig.datasets import registry
from gcig.methods import METHODS

FILES = {
    "pyproject.toml": """
        [build-system]
        requires = ["hatchling"]
        build-backend = "hatchling.build"

        [project]
        name = "fair-extras"
        version = "1.0"

        [project.entry-points."gcig.methods"]
        linear = "fair_extras.linear:LinearClassifier"
        strict = "fair_extras.strict:METHOD"

        [project.entry-points."gcig.datasets"]
        coins = "fair_extras.coins:COINS"
        """,
    "fair_extras/__init__.py": "",
    "fair_extras/linear.py": """
        from gcig.methods.unconstrained import UnconstrainedClassifier


        class LinearClassifier(UnconstrainedClassifier):
            "A linear model."

            method_key = "linear"

            def make_network(self, n_inputs, n_outputs, generator):
                self.hidden_sizes = ()
                return super().make_network(n_inputs, n_outputs, generator)
        """,
    "fair_extras/strict.py": """
        from gcig.methods import Method

        LOCATIONS = {"binary": "fair_extras.linear:LinearClassifier"}
        METHOD = Method("strict", "Strict", LOCATIONS, {"max_epochs": (1, 2)})
        """,
    "fair_extras/coins.py": """
        import pandas as pd
        from gcig import DatasetSpec, ProtectedAttribute

        COINS = DatasetSpec(
            name="coins",
            load=lambda: pd.DataFrame(
                {"size": [1, 2, 3, 4] * 20, "side": ["a", "b"] * 40, "heads": ["no", "no", "yes", "yes"] * 20}
            ),
            target="heads",
            positive="yes",
            protected=(ProtectedAttribute("side"),),
        )
        """,
}


def write_package(folder):
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


@pytest.mark.slow
def test_an_installed_package_adds_methods_and_datasets(tmp_path):
    write_package(tmp_path / "source")
    site = tmp_path / "site"
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(site)]
    pip = [sys.executable, "-m", "pip", "install", *options, str(tmp_path / "source")]
    subprocess.run(pip, check=True, capture_output=True)
    code = f"""
        import sys
        sys.path.append({str(site)!r})
        import gcig
        from gcig.cli import main
        from gcig.methods import METHODS

        assert METHODS["strict"].label == "Strict"
        assert {{"linear", "fairx"}} <= set(METHODS)
        data = gcig.load_dataset("coins", include_sensitive=False)
        model = METHODS["linear"].estimator(max_epochs=2, random_state=0)
        model.fit(data.X, data.y, sensitive_features=data.sensitive_features)
        model.save("model")
        assert (gcig.load("model").predict_proba(data.X) == model.predict_proba(data.X)).all()
        assert main(["datasets", "coins"]) == 0
        """
    (tmp_path / "use.py").write_text(textwrap.dedent(code))
    done = subprocess.run(
        [sys.executable, "-W", "error", "use.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "coins" in done.stdout


@pytest.fixture
def offer(tmp_path, monkeypatch):
    """Install entry points that exist in this test only."""
    monkeypatch.setattr(METHODS, "data", dict(METHODS.data))
    monkeypatch.setattr(METHODS, "_complete", False)
    monkeypatch.setattr(registry._SPECS, "data", dict(registry._SPECS.data))
    monkeypatch.setattr(registry._SPECS, "_complete", False)
    write_package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def write(entry_points):
        folder = tmp_path / "fair_extras-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: fair-extras\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(textwrap.dedent(entry_points))
        importlib.invalidate_caches()

    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] == "fair_extras"]:
        del sys.modules[name]


def test_entry_points_are_found(offer):
    offer("""
        [gcig.methods]
        linear = fair_extras.linear:LinearClassifier
        strict = fair_extras.strict:METHOD
        [gcig.datasets]
        coins = fair_extras.coins:COINS
        """)
    assert METHODS["linear"].estimator.__name__ == "LinearClassifier"
    assert METHODS["strict"].search_space == {"max_epochs": (1, 2)}
    assert registry.list_datasets()[-1] == "coins"
    assert registry.load_dataset("coins").X.shape == (80, 2)


def test_what_cannot_be_used_is_left_out_with_a_warning(offer):
    offer("""
        [gcig.methods]
        fairx = fair_extras.linear:LinearClassifier
        gone = fair_extras.gone:Method
        other = fair_extras.linear:LinearClassifier
        [gcig.datasets]
        text = fair_extras.coins:__name__
        """)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert not {"gone", "other"} & set(METHODS)
        assert "text" not in registry.list_datasets()
    assert "FairXClassifier" in METHODS["fairx"].locations["binary"]
    assert all(isinstance(each.message, PluginWarning) for each in caught)
    found = {each.message.name: each.message.reason for each in caught}
    assert found.keys() == {"fairx", "gone", "other", "text"}
    assert "already taken" in found["fairx"]
    assert "ModuleNotFoundError" in found["gone"]
