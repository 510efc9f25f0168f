"""A finished reproduction as published results: what people read and check, without the store.

    python -m gcig.experiments.publishing run/ results/paper docs/reproduction.rst

The store's predictions stay behind: they are large, and they are about single persons.
"""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from gcig.benchmark.run_files import RunError
from gcig.experiments.collection import EXPLANATIONS, MEASURED, POOLED, PROVENANCE, REQUEST, read_request
from gcig.experiments.documentation import write_documentation
from gcig.experiments.parameters import FILE as CHOSEN
from gcig.experiments.rendering import render

__all__ = ["publish"]

_FILES = (REQUEST, POOLED, PROVENANCE, CHOSEN)


def publish(run: str | Path, folder: str | Path, page: str | Path | None = None) -> Path:
    """Copy results, tables and figures to a folder, and write the documentation page from it.

    What an earlier call left in the folder is replaced, but for ``explanations.json``, which is written by
    hand: for the key of a check, such as ``"gcig_ratio/bank"``, why it was not met.
    """
    source, target = Path(run), Path(folder)
    read_request(source)
    if target.exists() and any(target.iterdir()) and not (target / REQUEST).is_file():
        raise RunError(f"{str(target)!r} is not a folder of published results: choose an empty one.")
    target.mkdir(parents=True, exist_ok=True)
    for old in target.iterdir():
        if old.name != EXPLANATIONS:
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    for file in (*(source / name for name in _FILES), *source.glob("results*.csv")):
        if file.is_file():
            shutil.copyfile(file, target / file.name)
    if (source / MEASURED).is_dir():
        shutil.copytree(source / MEASURED, target / MEASURED)
    render(target)
    if page is not None:
        write_documentation(target, page)
    return target


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    if len(given) not in (2, 3):
        sys.exit("usage: python -m gcig.experiments.publishing RUN FOLDER [PAGE.rst]")
    try:
        print(publish(*given))
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
