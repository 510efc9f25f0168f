"""`gcig reproduce`: the paper's tables and figures."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from gcig.cli import options as opt
from gcig.cli.frame import ExitCode, command, echo, echo_json, say


@command(
    "Reproduce the paper's tables and figures.",
    "gcig reproduce --out run/\ngcig reproduce --out quick/ --quick\ngcig reproduce --out run/ --shard 1/4",
)
@opt.option(
    "--out",
    "FOLDER",
    "The folder of the run. Repeat the command to resume a run.",
    required=True,
    type=opt.PATH,
)
@opt.names_option(
    "--datasets",
    opt.DATASET,
    "Datasets, such as german,adult; by default the paper's, and compas without its leak.",
)
@opt.flag(
    "--quick",
    "Run the comparison and the ablation only, on two folds and without tuning: about five minutes.",
)
@opt.shard_option
@opt.run_options
@opt.tuning_option("nested")
@opt.output_options
def reproduce(out: Path, quiet: bool, as_json: bool, **request: Any) -> ExitCode:
    """Run the paper's experiments and write its tables and figures, next to the paper's numbers.

    The comparison of the methods with nested tuning, the correlation of outcome and procedural fairness,
    ablation, sensitivity, design choices, cost, and other readings of the paper where our numbers differ: in
    about an hour on two cores. The page judges every claim of the paper that the run can test.
    """
    from gcig.experiments.reproduce import reproduce as run

    page = run(out, progress=not quiet, **request)
    document = reproduction_document(out, page)
    if as_json:
        echo_json(document)
    else:
        echo(f"Report:  {page}")
    if failed := sum(document["failed"].values()):
        total = failed + sum(document["finished"].values())
        say(f"gcig: {failed} of {total} trials failed. {opt.REPEAT_FAILED}")
        return ExitCode.INCONCLUSIVE
    return ExitCode.OK


def reproduction_document(folder: Path, page: Path) -> dict[str, Any]:
    """Return the request of a run, the paper's claims that it judged and the fits that failed."""
    from gcig.experiments.claims import judge_claims
    from gcig.experiments.run_folder import read
    from gcig.experiments.statements import CLAIMS

    found = read(folder)
    finished = {name: int(frame["error"].isna().sum()) for name, frame in found.frames.items()}
    failed = {name: int(frame["error"].notna().sum()) for name, frame in found.frames.items()}
    return {
        "schema": 1,
        "kind": "reproduction",
        "request": asdict(found.request),
        "finished": finished,
        "failed": failed,
        "claims": [
            {
                "key": each.claim.key,
                "statement": each.claim.statement,
                "paper": each.claim.printed,
                "findings": {
                    version: {"ours": finding.ours, "verdict": finding.verdict, "reason": finding.reason}
                    for version, finding in each.findings.items()
                },
            }
            for each in judge_claims(found, CLAIMS)
        ],
        "page": str(page),
    }
