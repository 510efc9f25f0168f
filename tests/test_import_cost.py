"""Imports of each entry point; a regression here slows down every `gcig --help`."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "sklearn", "pandas", "numpy", "scipy", "fairlearn", "jinja2")


def imported_by(code):
    """The heavy packages that a fresh interpreter has loaded after running the code."""
    probe = (
        f"{code}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return done.stderr.split()


@pytest.mark.parametrize(
    "code",
    [
        "import gcig",
        "import gcig; dir(gcig); gcig.__version__",
        "import gcig.cli",
        "from gcig.cli import main; assert main(['--help']) == 0",
        "import gcig; assert 'adult' in gcig.list_datasets()",
        "from gcig.cli import main; assert main(['datasets']) == 0",
    ],
)
def test_nothing_heavy_is_imported(code):
    assert imported_by(code) == []


def test_the_shell_is_imported_in_a_tenth_of_a_second():
    """The lowest processor time of three runs counts, since other work on the machine must not."""
    code = "import time; import gcig.cli; print(time.process_time())"
    seconds = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
        for _ in range(3)
    ]
    start = "import time; print(time.process_time())"
    bare = min(
        float(subprocess.run([sys.executable, "-c", start], capture_output=True, check=True).stdout)
        for _ in range(3)
    )
    assert min(seconds) - bare < 0.1


def test_the_probe_sees_a_heavy_import():
    assert "numpy" in imported_by("import numpy")
