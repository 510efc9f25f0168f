"""Pages of a run: `python -m reproduction.pages [run/]` publishes a run, if one is named, and draws them.

Published are a folder of results without the trials, whose predictions are large and about individual people,
the page of the documentation, and the table in the README.
"""

import csv
import io
import shutil
import sys
from pathlib import Path

import pandas as pd
from docutils.core import publish_string
from docutils.writers import html5_polyglot
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from reproduction import claims, correlation, figures, tables
from reproduction.results import Results, label

ROOT = Path(__file__).parents[1]
PUBLISHED, PAGE, README = ROOT / "results" / "paper", ROOT / "docs" / "reproduction.rst", ROOT / "README.md"
START, END = "<!-- results -->", "<!-- end of results -->"
_FILES = ("request.json", "pooled.csv", "provenance.json", "chosen_parameters.json", "results*.csv")
_LONG = 16  # rows; a longer table is split by dataset, because it is hard to read


def csv_table(frame: pd.DataFrame, caption: str) -> str:
    """Return a table as reStructuredText, one line per row, and one table per dataset if it is long.

    >>> print(csv_table(pd.DataFrame({"dataset": ["german"], "F1": ["**0.8**"]}), "All"))
    .. csv-table:: All
       :header-rows: 1
    <BLANKLINE>
       dataset,F1
       german,**0.8**
    """
    if len(frame) > _LONG and "dataset" in frame:
        parts = frame.groupby("dataset", sort=False)
        return "\n\n".join(
            csv_table(part.drop(columns="dataset"), f"{name}: {caption}") for name, part in parts
        )
    out = io.StringIO()
    frame.to_csv(out, index=False, quoting=csv.QUOTE_MINIMAL, lineterminator="\n")
    rows = "\n".join(f"   {line}" for line in out.getvalue().splitlines())
    return f".. csv-table:: {caption}\n   :header-rows: 1\n\n{rows}"


def markdown_table(frame: pd.DataFrame) -> str:
    """Return a table of text in Markdown."""
    rows: list[list[str]] = frame.to_numpy().tolist()
    rows = [frame.columns.tolist(), [":---"] * len(frame.columns), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def page(results: Results, figure_folder: str) -> str:
    """Return the page in reStructuredText; figures are linked in the given folder."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["table"] = csv_table
    judged = None if results.plan.quick else claims.judge(results)
    template = environment.get_template("page.rst.j2")
    known = {
        "results": results,
        "tables": tables,
        "correlation": correlation,
        "claims": claims,
        "label": label,
    }
    return template.render(**known, judged=judged, figures=figure_folder)


def draw(folder: Path) -> Path:
    """Draw the figures and the page of a run in its folder, and return the path of the page."""
    results = Results.read(folder)
    figures.draw(results, folder / "figures")
    text = page(results, "figures")
    html = publish_string(text, writer=html5_polyglot.Writer(), settings_overrides={"report_level": 2})
    (folder / "index.html").write_bytes(html)
    return folder / "index.html"


def publish(run: Path, folder: Path = PUBLISHED) -> None:
    """Replace the published results by those of a run, with its figures."""
    results = Results.read(run)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in (file for pattern in _FILES for file in run.glob(pattern)):
        shutil.copyfile(file, folder / file.name)
    shutil.copytree(run / "measured", folder / "measured")
    figures.draw(results, folder / "figures")


def readme(results: Results, text: str) -> str:
    """Return the text of the README with the overview of the results between its two marks."""
    before, rest = text.split(START)
    after = rest.split(END)[1]
    picture = "![AUC against GCIG and against the equalized odds gap, one point per method]"
    figure = f"{picture}(results/paper/figures/trade_off.png)"
    commit = f"The code of commit {results.code} computed these results."
    parts = (markdown_table(tables.overview(results)), _OVERVIEW, commit, figure)
    return f"{before}{START}\n\n" + "\n\n".join(parts) + f"\n\n{END}{after}"


_OVERVIEW = (
    '"GCIG" takes the mean of each label and group as the reference, "GCIG, members" its members. Hardt has '
    "no rank in GCIG, because its decisions come from group thresholds that the explained logit does not "
    "contain. The best other EO gap has the F1 of its method in brackets, to compare with the last column. "
    "Chance: the EO gap that an exactly fair model shows on folds of this size."
)


def main(arguments: list[str]) -> None:
    """Publish the run that is named, if any, and write the documentation's page and the README."""
    for run in arguments:
        publish(Path(run))
    results = Results.read(PUBLISHED)
    PAGE.write_text(page(results, "../results/paper/figures"), encoding="utf-8")
    README.write_text(readme(results, README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
