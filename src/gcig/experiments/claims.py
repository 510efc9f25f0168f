"""The paper's claims, one by one: each sentence with a number or a ranking, judged on the run's results.

A claim is *replicated* if the results support it beyond chance: a difference or a ranking if its 95 %
interval excludes zero, a number if the interval contains it. It *cannot be tested* if the paper leaves open
what would have to hold, or if too few folds are finished. Every claim about FairX is judged twice: for the
published algorithm, which the paper is about, and for our version. Claims that need datasets, methods or
experiments that were not requested are not judged at all.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gcig.experiments.collection import Collected
from gcig.experiments.evidence import MIN_FOLDS, Evidence
from gcig.experiments.paper import FAIRX, PUBLISHED
from gcig.experiments.settings import method_label
from gcig.records import Interval
from gcig.records.evaluation import UNRANKED_NOTE
from gcig.report.document import TableBlock
from gcig.report.tables import Mark, Table, Value

_FEW = "fewer than three folds are finished"
REPLICATED, NOT_REPLICATED, UNTESTABLE = "replicated", "not replicated", "cannot be tested"


@dataclass(frozen=True)
class Finding:
    """The results' verdict on a claim; ``holds`` is None if it cannot be tested, for the given reason."""

    ours: str
    holds: bool | None
    reason: str = ""

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return {True: REPLICATED, False: NOT_REPLICATED, None: UNTESTABLE}[self.holds]

    @classmethod
    def of(cls, ours: str, holds: bool, doubt: str) -> "Finding":
        """Return a verdict; ``doubt`` is the reason if the claim does not hold."""
        return cls(ours, holds, "" if holds else doubt)


TOO_FEW = Finding("-", None, _FEW)
MISSING = Finding("-", None, "results are missing")


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and how it is judged.

    Attributes
    ----------
    key : a short name.
    place : the part of the paper.
    statement : the sentence, shortened.
    printed : its number.
    judge : function of the evidence and the version of FairX.
    datasets, methods, experiment : what a run must contain to judge it, besides a version of FairX.
    about_fairx : whether the finding depends on the version of FairX.
    """

    key: str
    place: str
    statement: str
    printed: str
    judge: Callable[[Evidence, str], Finding]
    datasets: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    experiment: str = "comparison"
    about_fairx: bool = True


@dataclass(frozen=True)
class Judged:
    """A claim with its finding per version of FairX."""

    claim: Claim
    findings: Mapping[str, Finding] = field(default_factory=dict)


def judge_claims(found: Collected, claims: Iterable[Claim]) -> list[Judged]:
    """Judge the claims that the requested datasets, methods and experiments can test."""
    evidence = Evidence(found)
    versions = [method for method in (PUBLISHED, FAIRX) if method in found.request.methods]
    measured = [name for name, rows in found.measured.items() if rows]
    judged = []
    for claim in claims:
        asked = set(claim.datasets) <= set(found.request.datasets)
        asked &= set(claim.methods) <= set(found.request.methods)
        asked &= claim.experiment in (*found.request.experiments, *measured)
        if asked and versions:
            relevant = versions if claim.about_fairx else versions[:1]
            findings = {each: claim.judge(evidence, each) for each in relevant}
            if found.request.expected() < MIN_FOLDS and claim.experiment not in measured:
                findings = {each: replace(own, holds=None, reason=_FEW) for each, own in findings.items()}
            judged.append(Judged(claim, findings))
    return judged


def tables(judged: Sequence[Judged], n_claims: int) -> dict[str, Table]:
    """Return the claims with the paper's number, our results and verdicts."""
    versions = list(dict.fromkeys(version for each in judged for version in each.findings))
    rows: list[tuple[Value, ...]] = []
    marks: dict[tuple[int, int], Mark] = {}
    for each in judged:
        entries: list[Value] = []
        for place, version in enumerate(versions):
            finding = each.findings.get(version)
            if finding is None:
                entries += ["", ""]
                continue
            if finding.holds is False:
                marks[len(rows), 4 + 2 * place] = "concern"
            entries += [finding.ours, finding.verdict]
        rows.append((each.claim.place, each.claim.statement, each.claim.printed, *entries, _reasons(each)))
    results = [text for each in versions for text in (method_label(each), f"{method_label(each)}: verdict")]
    left = n_claims - len(judged)
    notes = [
        "Brackets are 95 % intervals: corrected resampled t over the folds for differences and ratios, a "
        "bootstrap of whole folds for correlations. A claim that does not depend on the version of FairX is "
        "judged once.",
        UNRANKED_NOTE,
        *([f"{left} claims need datasets, methods or experiments that are not in this run."] if left else []),
    ]
    header = ("place", "the paper states", "paper", *results, "reason")
    caption = "The paper's claims, one by one"
    table = TableBlock(header, rows, caption=caption, notes=notes, marks=marks, prose=True)
    return {"claims": table} if rows else {}


def count_verdicts(judged: Sequence[Judged], version: str) -> dict[str, int]:
    """Count the verdicts on one version; claims that do not depend on it count as well."""
    findings = [each.findings.get(version) or next(iter(each.findings.values())) for each in judged]
    verdicts = [finding.verdict for finding in findings]
    return {name: verdicts.count(name) for name in (REPLICATED, NOT_REPLICATED, UNTESTABLE)}


def _reasons(judged: Judged) -> str:
    """Return the reasons; those that do not apply to every version name the version."""
    reasons = {version: finding.reason for version, finding in judged.findings.items() if finding.reason}
    if len(reasons) == len(judged.findings) and len(set(reasons.values())) == 1:
        return next(iter(reasons.values()))
    return "; ".join(f"{method_label(version)}: {reason}" for version, reason in reasons.items())


def are_known(*intervals: Interval) -> bool:
    """Return whether the intervals that decide a claim are defined."""
    return not any(math.isnan(each.low + each.high) for each in intervals)


def untestable(reason: str) -> Callable[[Evidence, str], Finding]:
    """Return the judge of a claim that nothing could test."""
    return lambda _, __: Finding("-", None, reason)
