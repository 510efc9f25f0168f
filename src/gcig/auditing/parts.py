"""Audits of files: a plan from a sample of the rows, then sums over parts, in one process or in many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types as pt

from gcig._arguments import InputError
from gcig._progress import LONG, progress, silent
from gcig.adapters import AdaptedModel
from gcig.metrics.checked import check_rows, known_groups
from gcig.metrics.partial import Partial
from gcig.metrics.plan import Plan
from gcig.metrics.planning import make_plan
from gcig.metrics.samples import row_keys
from gcig.records.options import MeasureOptions
from gcig.tables.check import check_groups
from gcig.tables.read import TableFile
from gcig.tables.roles import Roles, check_filled, target_codes

ROWS_AT_ONCE = 65_536
SAMPLED_ROWS = 50_000  # of a larger file: references are taken from them
_MAX_LEVELS = 1001  # one more than any model may have, which is enough to notice too many
Part = tuple[pd.DataFrame, Any, pd.DataFrame, np.ndarray[Any, Any]]  # X, y, groups, keys


def list_files(path: str | Path) -> list[Path]:
    """Return the file, or the Parquet files of a folder in the order of their names."""
    path = Path(path)
    if not path.is_dir():
        return [path]
    found = sorted([*path.glob("*.parquet"), *path.glob("*.pq")])
    if not found:
        raise InputError(f"{path} is a folder without Parquet files: name a file, or a folder of parts.")
    return found


@dataclass(frozen=True, eq=False)
class LabelledFiles:
    """Files with the same columns; a row's key is its position in all of them."""

    files: tuple[TableFile, ...]
    roles: Roles
    task: str = "binary"
    rows_at_once: int = ROWS_AT_ONCE
    refuses_missing: bool = True  # whether rows without a group are an error

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return sum(file.n_rows for file in self.files)

    def frames(
        self, rows: int | None = None, *, only: int | None = None
    ) -> Iterator[tuple[int, pd.DataFrame]]:
        """Yield the rows in order, or those of one file, with the position of the first one of each part."""
        starts = list(accumulate((file.n_rows for file in self.files), initial=0))
        for place, (file, start) in enumerate(zip(self.files, starts, strict=False)):
            if only not in (None, place):
                continue
            for frame in file.batches(self.roles.columns, rows=rows or self.rows_at_once):
                protected = self.roles.sensitive if self.refuses_missing else ()
                check_filled(frame, (self.roles.target, *protected))
                yield start, frame
                start += len(frame)

    def part(
        self, start: int, frame: pd.DataFrame, classes: tuple[Any, ...] = (), flags: Sequence[str] = ()
    ) -> Part:
        """Return inputs, labels, groups and keys of some rows."""
        # Booleans are numbers in every part if some of them are missing in one.
        frame = frame.astype({name: np.float64 for name in flags if pt.is_bool_dtype(frame[name].dtype)})
        protected = self.roles.protected(frame)
        groups = protected if len(self.roles.sensitive) > 1 else protected[[self.roles.sensitive[0]]]
        target: Any = frame[self.roles.target]
        if self.task == "binary" and (self.roles.positive is not None or classes):
            target = target_codes(target, (classes or (0, 1))[:2], self.roles.positive)
        return frame[list(self.roles.inputs)], target, groups, np.arange(start, start + len(frame))

    def survey(self, seed: int) -> Survey:
        """Read all rows once: a sample of them, and the distinct values of columns, target and groups."""
        kept, keys = pd.DataFrame(), np.empty(0, dtype=np.uint64)
        missing: set[str] = set()
        levels: dict[str, set[Any]] = {}
        targets: set[Any] = set()
        groups, positions = pd.DataFrame(), np.empty(0, dtype=np.int64)
        for start, frame in self.frames():
            own = np.arange(start, start + len(frame))
            hashed = np.concatenate([keys, row_keys(own, len(own), seed)])
            few = np.argsort(hashed, kind="stable")[:SAMPLED_ROWS]
            kept = pd.concat([kept, frame], ignore_index=True).iloc[few].reset_index(drop=True)
            keys, positions = hashed[few], np.concatenate([positions, own])[few]
            for name in self.roles.inputs:
                if frame[name].isna().any():
                    missing.add(name)
                if not pt.is_numeric_dtype(frame[name].dtype) and len(levels.get(name, ())) < _MAX_LEVELS:
                    levels.setdefault(name, set()).update(frame[name].dropna().unique().tolist())
            if len(targets) < _MAX_LEVELS:
                targets.update(frame[self.roles.target].unique().tolist())
            found = pd.concat([groups, self.roles.protected(frame)])
            groups = found.drop_duplicates(ignore_index=True)
        return Survey(kept, positions, levels, frozenset(missing), tuple(sorted(targets, key=str)), groups)


@dataclass(frozen=True, eq=False)
class Survey:
    """What a first reading of a file shows."""

    sample: pd.DataFrame
    positions: np.ndarray[Any, Any]  # of the sampled rows
    levels: dict[str, set[Any]]
    missing: frozenset[str]
    targets: tuple[Any, ...]
    groups: pd.DataFrame  # distinct rows of the protected columns

    def prototype(self, inputs: Sequence[str]) -> pd.DataFrame:
        """Return a few rows with every level of the input columns, for adapters to learn."""
        examples: dict[str, list[Any]] = {}
        for name in inputs:
            known = self.sample[name].dropna()
            values = sorted(self.levels[name], key=str) if name in self.levels else known.iloc[:2].tolist()
            if name in self.missing:
                values.append(None if name in self.levels else np.nan)
            examples[name] = values or [np.nan]
        size = max(map(len, examples.values()))
        return pd.DataFrame({name: (entries * size)[:size] for name, entries in examples.items()})


def plan_of_files(
    adapted: AdaptedModel,
    source: LabelledFiles,
    survey: Survey,
    classes: tuple[Any, ...],
    options: MeasureOptions,
) -> Plan:
    """Freeze a plan: references are rows of the sample, unless the model knows its own."""
    flags = sorted(survey.missing)
    inputs, labels, groups, _ = source.part(0, survey.sample, classes, flags)
    _, distinct, _ = known_groups(survey.groups, options.missing_groups)
    names = check_groups(distinct, n_rows=len(distinct)).names
    if adapted.groups is not None and set(names) <= set(adapted.groups):
        names = adapted.groups
    own = () if adapted.classes is None else tuple(adapted.classes.tolist())
    rows = check_rows(
        adapted,
        (inputs, labels, groups),
        adapted.task,
        classes=own,
        names=names,
        missing_groups=options.missing_groups,
    )
    keys = rows.hashed_keys(survey.positions, options.seed)
    given = adapted.baselines is None
    return make_plan(adapted, options, rows, keys, given=given)


def measure_files(
    plan: Plan,
    source: LabelledFiles,
    classes: tuple[Any, ...],
    flags: Sequence[str],
    *,
    jobs: int = 1,
    backend: str | None = None,
    address: str | None = None,
) -> Partial:
    """Measure all rows in parts, and add them up."""

    def parts(only: int | None) -> Iterator[Part]:
        return (source.part(start, frame, classes, flags) for start, frame in source.frames(only=only))

    def tasks() -> Iterator[Callable[[], bytes]]:
        if len(source.files) > 1:  # a worker reads its own files
            for place in range(len(source.files)):
                yield partial(_measure_file, plan, source, classes, tuple(flags), place)
        else:
            for part in parts(None):
                yield partial(_measure, plan, part)

    alone = jobs == 1 and backend is None
    measured = (
        (plan.measure(*part[:3], keys=part[3]) for part in parts(None))
        if alone
        else (plan.read(data) for data in run_tasks(tasks(), jobs, backend, address))
    )
    total: Any = 0
    with progress(source.n_rows, "Measuring", after=LONG) as advance, silent():
        for found in measured:
            total = total + found
            advance(found.n_rows)
    whole: Partial = total
    return replace(whole, plan=plan)


def _measure(plan: Plan, part: Part) -> bytes:
    inputs, labels, groups, keys = part
    with silent():
        return plan.measure(inputs, labels, groups, keys=keys).to_bytes()


def _measure_file(
    plan: Plan, source: LabelledFiles, classes: tuple[Any, ...], flags: tuple[str, ...], place: int
) -> bytes:
    """Measure one of several files."""
    total: Any = 0
    with silent():
        for start, frame in source.frames(only=place):
            inputs, labels, groups, keys = source.part(start, frame, classes, flags)
            total = total + plan.measure(inputs, labels, groups, keys=keys)
    whole: Partial = total
    return whole.to_bytes()


def run_tasks(
    tasks: Iterator[Callable[[], bytes]], jobs: int, backend: str | None, address: str | None
) -> Iterator[bytes]:
    """Run tasks on some workers at once, a few ahead, and yield their results."""
    from joblib import Parallel, delayed

    with _on(backend, address):
        run = Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch="2 * n_jobs")
        yield from run(delayed(task)() for task in tasks)


def _on(backend: str | None, address: str | None) -> AbstractContextManager[Any]:
    """Return the context in which joblib uses a backend: its own processes, or those of Dask or Ray."""
    if backend in (None, "local", "loky"):
        return nullcontext()
    from joblib import parallel_config

    connect: dict[str, Callable[[], None]] = {
        "dask": lambda: _join_dask(address),
        "ray": lambda: _join_ray(address),
    }
    if backend not in connect:
        raise InputError(f"is {backend!r}: choose 'local', 'dask' or 'ray'.", argument="backend")
    connect[backend]()
    context: AbstractContextManager[Any] = parallel_config(backend=backend)
    return context


def _join_dask(address: str | None) -> None:
    from distributed import Client

    Client(address) if address else Client(processes=False)


def _join_ray(address: str | None) -> None:
    import ray
    from ray.util.joblib import register_ray

    ray.init(address=address, ignore_reinit_error=True)
    register_ray()


def classes_of(adapted: AdaptedModel, source: LabelledFiles, targets: Sequence[Any]) -> tuple[Any, ...]:
    """Return the names of the classes 0 and 1 of a binary target; none for other tasks."""
    if source.task != "binary":
        return ()
    if (named := source.roles.named_classes(targets)) is not None:
        return named
    if adapted.classes is not None:
        return tuple(adapted.classes.tolist())
    names = sorted(targets, key=lambda value: (str(type(value)), value))
    return tuple(names) if len(names) == 2 else (0, 1)
