"""Native files of boosted trees, which hold no code. As a program, this file tries to open one: PATH LIBRARY.

Damaged files can end the process that opens them, so another one tries first. It imports this file alone.
"""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

_SECONDS = 300  # the most that a library may take to open a file


def load(path: Path, kind: str) -> Any:
    """Open a file with its library; raise an error of any kind, or end the process, if it is damaged."""
    library = import_module(kind)
    if kind == "catboost":
        written = "cbm" if path.read_bytes()[:4] == b"CBM1" else "json"
        if written == "json":
            json.loads(path.read_bytes())  # CatBoost opens a truncated file as an empty model
        found = library.CatBoost().load_model(str(path), format=written)
        kind_of_model = library.CatBoostClassifier if len(found.classes_) else library.CatBoostRegressor
        return kind_of_model().load_model(str(path), format=written)
    if kind == "lightgbm":
        for tree in path.read_text("utf-8").split("\nTree=")[1:]:
            fields = dict(line.partition("=")[::2] for line in tree.splitlines())
            if (leaves := int(fields["num_leaves"])) > 1:
                children = map(int, f"{fields['left_child']} {fields['right_child']}".split())
                if sorted(children) != [*range(-leaves, 0), *range(1, leaves - 1)]:
                    raise ValueError("a tree in which not every node below the root has one parent")
    return library.Booster(model_file=str(path))


def load_safely(path: Path, kind: str) -> Any:
    """Open a file after another process has; that one imports installed packages, not the current folder."""
    done = subprocess.run([sys.executable, "-P", __file__, path, kind], capture_output=True, timeout=_SECONDS)
    if done.returncode:
        raise ValueError(f"the process that opened it ended with {done.returncode}")
    return load(path, kind)


if __name__ == "__main__":
    opened = load(Path(sys.argv[1]), sys.argv[2])
    if sys.argv[2] == "lightgbm":
        opened.dump_model(num_iteration=1)  # fails if what it describes is damaged
