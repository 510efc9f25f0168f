"""The documented table of faults: every fault, and tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAULTS = 43


def test_every_fault_is_documented_with_a_test():
    page = (ROOT / "docs" / "faults.rst").read_text("utf-8")
    rows = re.findall(r"\* - (\d+)\n     - .+\n     - .+\n     - ``(test_fault_\d\d)``", page)
    assert [int(number) for number, _ in rows] == list(range(1, FAULTS + 1))
    sources = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    tests = set(re.findall(r"def (test_fault_\d\d)_\w+\(", sources))
    assert {name for _, name in rows} == tests
    assert all(name.endswith(f"{int(number):02}") for number, name in rows)
