"""Print the non-blank lines of code per folder: `python scripts/lines.py [--at COMMIT]`."""

import argparse
import io
import re
import subprocess
import tarfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = {"python": (".py",), "templates": (".html", ".j2"), "styles": (".css",), "scripts": (".js", ".sh")}
FOLDERS = ("src", "tests", "reproduction", "benchmarks", "scripts", "docs", "examples")


def read_tree(commit: str | None) -> dict[str, bytes]:
    """Return the content of the repository's files, of a commit or of the working tree, by path."""
    if commit is not None:
        packed = subprocess.check_output(["git", "archive", commit], cwd=ROOT)
        with tarfile.open(fileobj=io.BytesIO(packed)) as tree:
            return {each.name: tree.extractfile(each).read() for each in tree if each.isfile()}
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.check_output(listed, cwd=ROOT, text=True).split("\0")
    return {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}


parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
parser.add_argument("--at", metavar="COMMIT", help="count at a commit instead of in the working tree")
counts: dict[str, Counter[str]] = {}
for path, content in read_tree(parser.parse_args().at).items():
    kind, top = next((k for k, ends in KINDS.items() if path.endswith(ends)), None), path.split("/")[0]
    if kind and top in FOLDERS:
        found = re.match(r"src/gcig/\w+/", path)
        lines = sum(bool(line.strip()) for line in content.split(b"\n"))
        for place in {"total", top, found[0] if found else "src/gcig/*.py" if top == "src" else top}:
            counts.setdefault(place, Counter())[kind] += lines
print(f"{'':24}" + "".join(f"{name:>11}" for name in (*KINDS, "all")))
for name in [*sorted(name for name in counts if "/" in name), *FOLDERS, "total"]:
    own = counts.get(name, Counter())
    print(f"{name:24}" + "".join(f"{own[kind]:11,}" for kind in KINDS) + f"{own.total():11,}")
