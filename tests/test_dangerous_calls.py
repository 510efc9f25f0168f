"""Calls that could run somebody else's code: which files of the package hold them."""

import ast
from functools import cache
from pathlib import Path

import gcig

SOURCE = Path(gcig.__file__).parent
NEVER = {"eval", "exec", "compile", "__import__", "os.system", "os.popen"}
NEVER |= {"import yaml", "import dill", "import cloudpickle", "import marshal", "import shelve"}
UNPICKLING = {"pickle.load", "pickle.loads", "pickle.Unpickler", "joblib.load", "pd.read_pickle"}
UNPICKLING |= {"torch.load", "torch.export.load", "torch.jit.load"}


@cache
def names_used(path):
    """Return what a file calls and imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            found.add(ast.unparse(node.func))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.add(f"import {getattr(node, 'module', None) or node.names[0].name}")
    return found


def files_with(names):
    return {path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if names & names_used(path)}


def test_no_text_is_run_and_no_yaml_is_read():
    assert files_with(NEVER) == set()


def test_pickles_are_read_in_one_place_only():
    """A model that trust_pickle opens. (joblib pickles the calls that it sends to workers.)"""
    assert files_with(UNPICKLING) == {"auditing/subject.py"}
