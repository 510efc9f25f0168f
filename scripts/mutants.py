"""Mutation tests: change one operator, number or condition of a file, and see whether a test notices.

    pytest -m 'not slow' --cov --cov-context=test
    python scripts/mutants.py [--sample 150] [--seed 0] [--others 60] [--coverage FILE ...] [--rooms ROOM ...]
                              [--jobs 1] [--limit SECONDS] [--results FILE]

The first command records the tests that execute each line, by default in .coverage. A mutant is run against
these tests, those of its own file and room first, in forks of a process that has imported the large libraries
already. Tests that fail without any change are left out. The share of killed mutants is printed with every
survivor. A mutant that keeps a single test busy for a minute counts as killed, one whose tests take too long
together as a survivor. Each result is appended to --results as soon as it is known, and the same command
continues after the last one.
"""

import argparse
import ast
import compileall
import copy
import importlib
import itertools
import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cached_property
from pathlib import Path

import pytest
from coverage import CoverageData

ROOT = Path(__file__).parents[1]
ROOMS = ["core", "training", "metrics", "methods/fairx"]
_TEST_SECONDS = 60  # processor time of one test, after which a mutant counts as endless; a fast test takes 5
_WAITING_SECONDS = 400  # of one test, for mutants that wait for ever
_USAGE_ERROR, _NO_TESTS = 4, 5  # pytest's exit codes if a test does not exist, or all are deselected

_OPTIONS = [
    "-q",
    "--tb=no",
    "--assert=plain",
    "-p",
    "no:cacheprovider",
    "-p",
    "_hypothesis_pytestplugin",
]
_OPTIONS += ["--hypothesis-seed=0", "-W", "ignore::pytest.PytestAssertRewriteWarning", "-m", "not slow"]
# Imported once, and inherited by every fork.
_LIBRARIES = ["torch", "pandas", "scipy.stats", "sklearn.pipeline", "sklearn.linear_model", "joblib", "click"]
_LIBRARIES += ["fairlearn.reductions", "safetensors.torch", "narwhals", "jinja2", "hypothesis.extra.numpy"]

_COMPARED = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.Is: ast.IsNot, ast.In: ast.NotIn}
_COMPARED |= {other: one for one, other in _COMPARED.items()}
_COMPUTED = {ast.Add: ast.Sub, ast.Mult: ast.Div, ast.BitAnd: ast.BitOr, ast.FloorDiv: ast.Mult}
_COMPUTED |= {
    ast.Sub: ast.Add,
    ast.Div: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.Pow: ast.Mult,
    ast.Mod: ast.Mult,
}
_CALLED = {"min": "max", "amin": "amax", "argmin": "argmax", "minimum": "maximum", "clamp_min": "clamp_max"}
_CALLED |= {"all": "any", "zeros": "ones", "zeros_like": "ones_like", "floor": "ceil"}
_CALLED |= {other: one for one, other in _CALLED.items()}
# Messages and declarations, which no test of behaviour reads.
_SKIPPED_FIELDS = {"annotation", "returns", "decorator_list", "exc", "msg", "type_params", "bases"}
_SKIPPED_IF_TRUE = {"strict", "non_blocking"}  # an assertion of equal lengths, and no effect on a CPU
_SKIPPED_CALLS = {"warn", "field", "parameter", "getLogger", "cast", "TypeVar", "NamedTuple"}


class Mutant:
    """One change of one file, found again in a fresh tree by its position among the nodes."""

    def __init__(
        self, path: Path, tree: ast.Module, node: ast.AST, position: int, change: int, text: str
    ) -> None:
        self.path, self.position, self.change, self.text = path, position, change, text
        self.line, self.column = node.lineno, node.col_offset + 1
        self._tree = tree

    @cached_property
    def lines(self) -> set[int]:
        """The lines of the changed statement; of the function for a default, of the uses for a constant."""
        around = [
            each
            for each in ast.walk(self._tree)
            if isinstance(each, ast.stmt) and each.lineno <= self.line <= each.end_lineno
        ]
        statement = max(around, key=lambda each: (each.lineno, -each.end_lineno))
        body = getattr(statement, "body", None)
        if isinstance(statement, ast.FunctionDef):
            return set(range(body[0].lineno, statement.end_lineno + 1))
        lines = set(range(statement.lineno, body[0].lineno if body else statement.end_lineno + 1))
        if any(isinstance(each, ast.FunctionDef) for each in around):
            return lines
        functions = (each for each in ast.walk(self._tree) if isinstance(each, ast.FunctionDef))
        inside = {line for each in functions for line in range(each.body[0].lineno, each.end_lineno + 1)}
        names = [each for each in ast.walk(self._tree) if isinstance(each, ast.Name | ast.Attribute)]
        while True:  # a constant may be used by another one, or as a default
            stored = {each.id for each in names if isinstance(each.ctx, ast.Store) and each.lineno in lines}
            loaded = (each for each in names if isinstance(each.ctx, ast.Load))
            uses = {
                each.lineno for each in loaded if getattr(each, "id", getattr(each, "attr", "")) in stored
            }
            if uses - inside <= lines:
                return uses
            lines |= uses - inside

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}: {self.text}"

    @property
    def module(self) -> str:
        """The name of the module, by which its examples in docstrings are tested."""
        return f"[{'.'.join(self.path.with_suffix('').parts)}]"

    def source(self, root: Path) -> str:
        """Return the text of the changed file."""
        tree = ast.parse((root / self.path).read_text("utf-8"))
        node = list(visited(tree))[self.position]
        changes(node)[self.change]()
        return ast.unparse(tree)


def visited(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that can be changed, without messages, declarations and docstrings."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in _SKIPPED_FIELDS:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Assert):
                continue
            if isinstance(child, ast.Call) and called(child) in _SKIPPED_CALLS:
                continue
            if isinstance(child, ast.keyword) and child.arg in _SKIPPED_IF_TRUE and _is_true(child.value):
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue
            yield from visited(child)


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def called(node: ast.Call) -> str:
    """Return the last name of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def changes(node: ast.AST) -> list[Callable[[], None]]:
    """Return functions that each change a node in place."""

    def put(target: ast.AST, name: str, value: object) -> Callable[[], None]:
        return lambda: setattr(target, name, value)

    match node:
        case ast.Compare(ops=[op]) if type(op) in _COMPARED:
            return [put(node, "ops", [_COMPARED[type(op)]()])]
        case ast.BinOp(op=op) | ast.AugAssign(op=op) if type(op) in _COMPUTED:
            return [put(node, "op", _COMPUTED[type(op)]())]
        case ast.BoolOp(op=op):
            return [put(node, "op", ast.Or() if isinstance(op, ast.And) else ast.And())]
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            return [put(node, "op", ast.UAdd())] if isinstance(node.op, ast.USub) else [_unwrap(node)]
        case ast.Constant(value=bool() as value):
            return [put(node, "value", not value)]
        case ast.Constant(value=int() as value):
            return [put(node, "value", value + 1)]
        case ast.Constant(value=float() as value):
            return [put(node, "value", value * 2 or 1.0)]
        case ast.If() | ast.IfExp() | ast.While() if not _negated_otherwise(node.test):
            return [put(node, "test", ast.UnaryOp(ast.Not(), node.test))]
        case ast.Call(func=ast.Attribute() as function) if function.attr in _CALLED:
            return [put(function, "attr", _CALLED[function.attr])]
        case ast.Call(func=ast.Name() as function) if function.id in _CALLED:
            return [put(function, "id", _CALLED[function.id])]
    return []


def _negated_otherwise(test: ast.expr) -> bool:
    """Whether a change of the condition's own node is its negation already."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            return True
        case ast.Compare(ops=[ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()]):
            return True
    return False


def _unwrap(node: ast.UnaryOp) -> Callable[[], None]:
    """Remove a `not`."""

    def change() -> None:
        node.operand = ast.UnaryOp(ast.Not(), node.operand)

    return change


def mutants(path: Path, root: Path) -> list[Mutant]:
    """Return all mutants of a file."""
    found, tree = [], ast.parse((root / path).read_text("utf-8"))
    for position, node in enumerate(visited(tree)):
        for number in range(len(changes(node))):
            other = copy.deepcopy(node)
            changes(other)[number]()
            before, after = (ast.unparse(getattr(each, "test", each)) for each in (node, other))
            text = f"{before} -> {after}".replace("\n", " ")[:150]
            found.append(Mutant(path, tree, node, position, number, text))
    return found


class Watch:
    """Plugin of pytest that ends the process during a test that does not end, and writes down failures."""

    def __init__(self, failed: Path) -> None:
        self._failed = failed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write down a test that fails."""
        if report.failed:
            self._write(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write down a file that cannot be imported, or skips all of its tests."""
        if not report.passed:
            self._write(report.nodeid)

    def _write(self, name: str) -> None:
        with open(self._failed, "a", encoding="utf-8") as file:
            print(name, file=file)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        """Start both clocks anew, and let their signals end the process."""
        signal.setitimer(signal.ITIMER_PROF, _TEST_SECONDS)
        signal.setitimer(signal.ITIMER_REAL, _WAITING_SECONDS)
        return (yield)


class CopyOfTree:
    """Copy of the source files in which one process at a time changes a file and runs tests."""

    def __init__(self, folder: Path, end: float) -> None:
        self.folder, self.end = Path(tempfile.mkdtemp(dir=folder)), end
        self.source, self.log, self.failed = (self.folder / name for name in ("src", "log", "failed"))
        shutil.copytree(folder / "src", self.source)

    def result_of(self, mutant: Mutant, stages: list[list[str]], seconds: int) -> str:
        """Return what became of a mutant, with the number of its tests; nothing if the time is up."""
        if not any(stages):
            return "NOT TESTED"
        target, counted = self.source / mutant.path, f"({sum(map(len, stages))} tests)"
        original = target.read_text("utf-8")
        target.write_text(mutant.source(self.source), encoding="utf-8")
        code = self._run_stages(stages, min(time.monotonic() + seconds, self.end))
        target.write_text(original, encoding="utf-8")
        if code is None:
            return f"SURVIVED, not all of {counted}" if time.monotonic() < self.end else ""
        return f"{'SURVIVED' if code == 0 else 'killed' if code > 0 else 'endless'} {counted}"

    def failing(self, tests: list[str]) -> list[str]:
        """Return which of some tests, or of their files, do not run or fail although nothing is changed."""
        self._run_known(tests, self.end)
        return self.failed.read_text("utf-8").splitlines()

    def _run_stages(self, stages: list[list[str]], deadline: float) -> int | None:
        """Return the first exit code of pytest that is not 0, None if the tests take too long together."""
        for tests in filter(None, stages):
            code = self._run_known(["-x", *tests], deadline)
            if code not in (0, _NO_TESTS):
                return code
        return 0

    def _run_known(self, tests: list[str], deadline: float) -> int | None:
        """Run tests without those that no longer exist, by which pytest would stop."""
        while (code := self._run(tests, deadline)) == _USAGE_ERROR:
            lines = self.log.read_text("utf-8").splitlines()
            unknown = tuple(line.split("not found: ")[1] for line in lines if "not found: " in line)
            if not unknown and self.failed.read_text("utf-8"):  # a file does not run
                return 1
            if not unknown:
                raise RuntimeError("\n".join(["pytest does not run:", *lines[-30:]]))
            tests = [name for name in tests if not str(ROOT / name).startswith(unknown)]
            if not any(name != "-x" for name in tests):
                return 0
        return code

    def _run(self, tests: list[str], deadline: float) -> int | None:
        """Run pytest in a fork that imports the copy; return its exit code, None after the deadline."""
        self.failed.write_text("", encoding="utf-8")
        child = os.fork()
        if not child:
            os.setpgid(0, 0)
            os.chdir(ROOT)
            with open(self.log, "w", encoding="utf-8") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            places = [str(self.source), *filter(None, [os.environ.get("PYTHONPATH")])]
            os.environ |= {"PYTHONPATH": os.pathsep.join(places), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
            sys.path.insert(0, str(self.source))
            sys.dont_write_bytecode = True
            try:
                os._exit(int(pytest.main([*_OPTIONS, *tests], plugins=[Watch(self.failed)])))
            finally:  # pytest itself failed
                os._exit(_USAGE_ERROR)
        while time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return None


def own_tests(path: Path) -> str:
    """Return the folder of the tests of a file's room."""
    return str(Path("tests", *path.parent.parts[1:]))


class TestsByLine:
    """The tests that execute each line of the source files, from one or several coverage files."""

    def __init__(self, names: Sequence[str]) -> None:
        self._data = [CoverageData(name) for name in names]
        for each in self._data:
            each.read()
        self._found: dict[Path, dict[int, set[str]]] = {}

    def of_file(self, path: Path) -> dict[int, set[str]]:
        """Return the tests of each line of a file; lines that run at import only have an empty set."""
        if path in self._found:
            return self._found[path]
        found = self._found[path] = {}
        for each in self._data:
            measured = next((name for name in each.measured_files() if name.endswith(f"src/{path}")), "")
            for line, contexts in each.contexts_by_lineno(measured).items():
                found.setdefault(line, set()).update(name.partition("|")[0] for name in contexts if name)
        return found

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests that execute the changed statement, or use the constant that it defines."""
        known = self.of_file(mutant.path)
        names = set().union(*(known.get(line, ()) for line in mutant.lines))
        # A constant that other files use may matter to any test of the room.
        return sorted(names) if mutant.lines else [own_tests(mutant.path)]


def find_tests(mutant: Mutant, tests: TestsByLine, n_others: int) -> list[list[str]]:
    """Return the tests that a mutant may fail: those of its file, of its room, and some others."""
    names = tests.of(mutant)
    prefix = f"{own_tests(mutant.path)}/test_{mutant.path.stem}.py"
    of_file = [name for name in names if name.startswith(prefix) or mutant.module in name]
    of_room = [name for name in names if name.startswith(own_tests(mutant.path)) and name not in of_file]
    others = [name for name in names if name not in of_file and name not in of_room]
    others = others[:: -(-len(others) // n_others) or 1] if n_others else []
    return [of_file, of_room, others]


def files(source: Path, room: str) -> list[Path]:
    """Return the files of a room, relative to the source folder."""
    place = source / "gcig" / room
    paths = [place] if place.is_file() else sorted(place.glob("*.py"))
    return [path.relative_to(source) for path in paths if path.name != "__init__.py"]


def main() -> int:
    """Print every survivor, and the share of mutants that were killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rooms", nargs="+", default=ROOMS)
    parser.add_argument("--sample", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--others", type=int, default=60, help="tests of other rooms, at most")
    parser.add_argument("--seconds", type=int, default=900, help="of all tests of a mutant, at most")
    parser.add_argument("--jobs", type=int, default=1, help="mutants that run at the same time")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds after which the run ends")
    parser.add_argument("--coverage", nargs="+", default=[str(ROOT / ".coverage")])
    parser.add_argument("--results", type=Path, help="file to which each result is appended")
    options = parser.parse_args()
    end = time.monotonic() + options.limit
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in _LIBRARIES:
        importlib.import_module(name)
    folder = Path(tempfile.mkdtemp())  # a context manager would also clean up in forks of forks
    source = folder / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(source, quiet=1)
    compileall.compile_dir(ROOT / "tests", quiet=1)
    tests = TestsByLine(options.coverage)
    every = [each for room in options.rooms for path in files(source, room) for each in mutants(path, source)]
    chosen = random.Random(options.seed).sample(every, min(options.sample, len(every)))
    known = read_results(options.results)
    left = {str(each): each for each in chosen if str(each) not in known}
    stages = {name: find_tests(each, tests, options.others) for name, each in left.items()}
    print(f"{len(chosen)} of {len(every)} mutants, {len(chosen) - len(left)} known", flush=True)
    if left and not any(map(any, stages.values())):
        sys.exit("There is no coverage by test: run pytest -m 'not slow' --cov --cov-context=test first.")
    forks = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(options.jobs, forks, _set_up, (folder, end)) as pool:
        by_file = group_by_file({test for each in stages.values() for stage in each for test in stage})
        failing = {name for names in pool.map(_failing, by_file) for name in names}
        print(
            f"{len(failing)} tests or files do not run without any change: {' '.join(sorted(failing))}",
            flush=True,
        )
        running = {
            pool.submit(_result_of, each, without(stages[name], failing), options.seconds): name
            for name, each in left.items()
        }
        for done in as_completed(running):
            name, result = running[done], done.result()
            if result:
                known[name] = result
                print(f"{len(known)} {result} {name}", flush=True)
                if options.results:
                    with open(options.results, "a", encoding="utf-8") as file:
                        print(json.dumps([name, result]), file=file)
    shutil.rmtree(folder)
    results = [known[str(each)] for each in chosen if str(each) in known]
    killed = sum(not each.startswith(("SURVIVED", "NOT TESTED")) for each in results)
    print(f"{killed} of {len(results)} mutants killed ({killed / max(len(results), 1):.1%})")
    return 0


def _set_up(folder: Path, end: float) -> None:
    """Give a worker process its own copy of the source files."""
    global _folder_of_copy
    _folder_of_copy = CopyOfTree(folder, end)


def _failing(tests: list[str]) -> list[str]:
    return _folder_of_copy.failing(tests)


def _result_of(mutant: Mutant, stages: list[list[str]], seconds: int) -> str:
    return _folder_of_copy.result_of(mutant, stages, seconds)


def group_by_file(tests: Iterable[str]) -> list[list[str]]:
    """Return the tests of each file."""
    return [
        list(group) for _, group in itertools.groupby(sorted(tests), lambda name: name.partition("::")[0])
    ]


def without(stages: list[list[str]], failing: set[str]) -> list[list[str]]:
    """Leave out tests that fail, and those of files that do."""
    return [[name for name in stage if not {name, name.partition("::")[0]} & failing] for stage in stages]


def read_results(path: Path | None) -> dict[str, str]:
    """Return the results of an earlier run by mutant; nothing if there was none."""
    if path is None or not path.exists():
        return {}
    return dict(json.loads(line) for line in path.read_text("utf-8").splitlines())


if __name__ == "__main__":
    sys.exit(main())
