"""`gcig predict`: a probability and a decision for every row of a file of any length."""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from gcig.cli import options as opt
from gcig.cli.frame import check_absent, check_columns, check_writable, command, echo_json, say

if TYPE_CHECKING:
    import pandas as pd

    from gcig.tables.read import TableFile

_PARQUET = (".parquet", ".pq")
_RESULTS = ("probability", "decision")
_NUMBER_RESULT = "prediction"
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?")


@command(
    "Predict a probability and a decision for every row.",
    "gcig predict model/ new.csv --id id --out decisions.csv",
)
@opt.model_and_file
@opt.option(
    "--out", "FILE", "Output file, .csv or .parquet. CSV on standard output by default.", type=opt.PATH
)
@opt.overwrite_option
@opt.option("--id ids", "COLUMN", "A column of the input to write as well. May be repeated.", multiple=True)
@opt.flag("--keep", "Write all columns of the input as well.")
@opt.option(
    "--sensitive",
    "COLUMN",
    "The protected attribute, for the methods that need it to predict (dir, hardt); several in the order of "
    "training.",
    multiple=True,
)
@opt.option("--rows-at-once", "N", "Rows in memory at a time.", default=50_000, type=opt.COUNT)
@opt.reading_options
@opt.output_options
def predict(
    model: Path,
    file: Path,
    out: Path | None,
    ids: Sequence[str],
    keep: bool,
    sensitive: Sequence[str],
    rows_at_once: int,
    quiet: bool,
    as_json: bool,
    overwrite: bool,
    group_names: Mapping[str, str],
    **reading: Any,
) -> None:
    """Predict with a model that `gcig train` or save() wrote.

    Writes one row per row of FILE, in the same order: the columns that --id or --keep name, then probability
    (of the positive of two classes, or of the decided one of several) and decision, or for numbers the
    prediction. Columns that the model does not know are ignored.
    Entries of the input are passed through unchanged, with a warning if a spreadsheet could evaluate one as a
    formula. A CSV file is read with the separator and the decimal mark of the training file; a number written
    differently is an error that names the row, unless --sep and --decimal say otherwise. FILE may be - for
    standard input. With --out, --json prints the location of the predictions and the number of rows per
    decision.
    """
    import gcig
    from gcig._progress import progress
    from gcig.tables.read import open_table

    if as_json and out is None:
        raise click.UsageError("--json needs --out: without it, standard output is for the predictions.")
    check_absent(out, overwrite=overwrite)
    estimator = gcig.load(model)
    decisions: Counter[str] = Counter()
    rows = 0
    with standard_input_as_file() if str(file) == "-" else nullcontext(file) as path:
        table = open_table(path, model=estimator, **reading)
        group_names = group_names or getattr(estimator, "group_names_", {})
        passed = _check_request(estimator, table, ids, keep, sensitive, out)
        if not quiet:
            for note in table.notes:
                say(f"Note: {note}.")
            if sensitive and not estimator.needs_groups_to_predict:
                say("Note: this model predicts without the protected attribute; --sensitive is not used.")
        shown = table.n_rows > rows_at_once and not quiet
        with open_writer(out) as write, progress(table.n_rows, "Predicting", shown=shown) as advance:
            for part in _predict_parts(estimator, table, passed, sensitive, group_names, rows_at_once):
                write(part)
                decisions.update(part["decision"].tolist() if "decision" in part else [])
                rows += len(part)
                advance(len(part))
    if out is not None and not quiet:
        say(f"{table.n_rows:,} rows written to {out}.")
    if as_json:
        echo_json(_summary(estimator, model, file, out, rows, decisions))


def _check_request(
    model: Any, table: TableFile, ids: Sequence[str], keep: bool, sensitive: Sequence[str], out: Path | None
) -> list[str]:
    """Return the columns to pass through; raise an error if file or options do not fit the model."""
    from gcig._arguments import listed

    inputs = list(model.encoder_.feature_names_in_)
    if absent := [name for name in inputs if name not in table.names]:
        raise click.ClickException(
            f"{table.path} lacks {len(absent)} of the {len(inputs)} columns that the model was trained "
            f"with: {listed(absent)}. It has: {listed(table.names, 20)}."
        )
    check_columns(table.path, table.names, {"--id": ids, "--sensitive": sensitive})
    if model.needs_groups_to_predict and not sensitive:
        raise click.ClickException(
            f"This model ({model.method_key}) needs the group of every row to predict: name its "
            f"column with --sensitive. Training had the groups {listed(model.groups_)}."
        )
    passed = [name for name in table.names if name] if keep else list(dict.fromkeys(ids))
    if clash := [name for name in passed if name in (*_RESULTS, _NUMBER_RESULT)]:
        raise click.ClickException(
            f"{table.path} has a column '{clash[0]}', which is also a column of the result: rename it, or "
            "choose the columns to keep with --id instead of --keep."
        )
    if out is not None and out.exists() and out.samefile(table.path):
        raise click.ClickException(f"--out {out} is the input itself: choose another name.")
    return passed


def _predict_parts(
    estimator: Any,
    table: TableFile,
    passed: Sequence[str],
    sensitive: Sequence[str],
    group_names: Mapping[str, str],
    rows: int,
) -> Iterator[pd.DataFrame]:
    """Yield the output of each part, and sum the warnings that count rows, to issue each once at the end."""
    import pandas as pd

    from gcig._arguments import warn_caller
    from gcig.tables.encoding import UnseenValuesWarning

    groups = list(sensitive) if estimator.needs_groups_to_predict else []
    wanted = [*passed, *(name for name in groups if name not in passed)]
    unseen: dict[str, Counter[str]] = {}
    formulas: Counter[str] = Counter()
    for inputs, texts in table.parts(estimator.encoder_.feature_names_in_, wanted, rows=rows):
        results, caught = _predict_part(estimator, inputs, texts[groups], group_names)
        for each in caught:
            if isinstance(each.message, UnseenValuesWarning):
                unseen.setdefault(each.message.treatment, Counter()).update(each.message.rows)
            else:
                warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
        kept = texts[list(passed)]
        formulas.update(count_formulas(kept))
        yield pd.concat([kept, results], axis=1)
    for treatment, counts in unseen.items():
        warn_caller(UnseenValuesWarning(treatment, counts))
    warn_of_formulas(formulas)


def warn_of_formulas(counts: Mapping[str, int]) -> None:
    """Warn about columns with entries that were written unchanged and that a spreadsheet would evaluate."""
    from gcig._arguments import warn_input

    for name, count in counts.items():
        if count:
            warn_input(
                f"has {count} entries that a spreadsheet would evaluate as formulas (they begin with =, +, - "
                "or @). They were passed through unchanged: do not open the result in a spreadsheet unless "
                "you trust them.",
                column=name,
            )


def _predict_part(
    estimator: Any, inputs: pd.DataFrame, groups: pd.DataFrame, group_names: Mapping[str, str]
) -> tuple[pd.DataFrame, list[warnings.WarningMessage]]:
    """Return the probability and decision of each row, and the warnings raised."""
    import pandas as pd

    from gcig.tables.frames import level_name
    from gcig.tables.names import guard_formula
    from gcig.tables.roles import name_groups

    extra: dict[str, Any] = {}
    if groups.shape[1]:
        named = name_groups(groups, group_names)
        extra["sensitive_features"] = _match_groups(named, estimator.groups_)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        predicted = estimator.predict(inputs, **extra)
    if not hasattr(estimator, "classes_"):
        return pd.DataFrame({_NUMBER_RESULT: predicted}, index=inputs.index), caught
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same warnings as above
        probabilities = estimator.predict_proba(inputs, **extra)
    several = probabilities.shape[1] > 2
    probability = probabilities.max(axis=1) if several else probabilities[:, 1]
    decision = [guard_formula(level_name(value)) for value in predicted.tolist()]
    columns = dict(zip(_RESULTS, (probability, decision), strict=True))
    return pd.DataFrame(columns, index=inputs.index), caught


def _match_groups(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Rename groups as in training: a CSV file may have "1.0" or "true" if training had 1 or True."""
    import pandas as pd

    from gcig.tables.frames import level_name

    known = {level for name in names for level in (name, *name.split(" & "))}
    several = frame.shape[1] > 1

    def rename(attribute: str, entry: Any) -> Any:
        if not isinstance(entry, str):
            return entry
        text = entry.strip()
        forms = [text, text.capitalize()]
        if _NUMBER.fullmatch(text):
            forms.append(level_name(float(text.replace(",", "."))))
        found = (form for form in forms if (f"{attribute}={form}" if several else form) in known)
        return next(found, text or None)

    columns = {
        name: frame[name].map({entry: rename(str(name), entry) for entry in frame[name].dropna().unique()})
        for name in frame.columns
    }
    return pd.DataFrame(columns, index=frame.index)


def count_formulas(frame: pd.DataFrame) -> Mapping[str, int]:
    """Return the number of text entries per column that a spreadsheet would evaluate."""
    import pandas as pd

    from gcig.tables.names import is_formula

    texts = [name for name in frame.columns if pd.api.types.is_string_dtype(frame[name].dtype)]
    return {str(name): sum(map(is_formula, frame[name].dropna().astype(str))) for name in texts}


def _summary(
    estimator: Any, model: Path, file: Path, out: Path | None, rows: int, decisions: Mapping[str, int]
) -> dict[str, Any]:
    import numpy as np

    from gcig.tables.frames import level_name

    classes = [level_name(value) for value in getattr(estimator, "classes_", np.empty(0)).tolist()]
    return {
        "schema": 1,
        "kind": "predictions",
        "model": str(model),
        "method": estimator.method_key,
        "file": str(file),
        "out": str(out),
        "rows": rows,
        "positive": classes[1] if len(classes) == 2 else None,
        "decisions": {name: decisions.get(name, 0) for name in classes},
    }


@contextmanager
def standard_input_as_file() -> Iterator[Path]:
    """Copy standard input to a temporary file, which can be read more than once."""
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory(prefix="gcig-") as folder:
        path = Path(folder, "standard input")
        with open(path, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        yield path


@contextmanager
def open_writer(out: Path | None) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Yield a function that appends rows to a file, or to standard output as CSV.

    The file appears complete or not at all.
    """
    from gcig._files import atomic_path

    if out is None:
        yield _csv_writer(sys.stdout)
        return
    if out.suffix not in (".csv", *_PARQUET):
        raise click.ClickException(
            f"--out {out}: the format follows from the name, which must end in .csv or .parquet."
        )
    check_writable(out)
    with atomic_path(out) as temporary:
        if out.suffix in _PARQUET:
            with _parquet_writer(temporary) as write:
                yield write
        else:
            with open(temporary, "w", encoding="utf-8", newline="") as file:
                yield _csv_writer(file)


def _csv_writer(file: IO[str]) -> Callable[[pd.DataFrame], None]:
    header = True

    def write(part: pd.DataFrame) -> None:
        nonlocal header
        name = "probability" if "probability" in part else _NUMBER_RESULT
        shown = part.assign(**{name: [f"{value:.6f}" for value in part[name]]})
        shown.to_csv(file, index=False, header=header, lineterminator="\n")
        header = False

    return write


@contextmanager
def _parquet_writer(path: Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer: Any = None

    def write(part: pd.DataFrame) -> None:
        nonlocal writer
        table = pa.Table.from_pandas(part, preserve_index=False)
        if writer is None:
            writer = pq.ParquetWriter(path, table.schema)
        writer.write_table(table.cast(writer.schema))

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
