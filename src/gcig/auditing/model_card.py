"""An audit as a section of a model card, in Markdown."""

from collections.abc import Sequence

from gcig.records.audit import AuditRecord
from gcig.records.base import Interval
from gcig.records.formatting import limits
from gcig.records.trust import TRUST_NUMBERS, describe_trust
from gcig.report.tables import Table, Value, estimate, markdown_text, rows_entry, to_markdown

_COLUMNS = 10


def model_card(record: AuditRecord) -> str:
    """Write headings, sentences and tables; names from the user's table are escaped."""
    subject, found, outcome = record.subject, record.procedural, record.outcome
    figures = {
        "GCIG": found.interval,
        "GCIG with shuffled groups (noise floor)": found.noise_floor,
        "GCIG beyond chance": found.excess,
        "equalized odds gap": outcome.eo_gap,
        "ratio of favourable decisions (four fifths)": outcome.selection_rate_ratio,
        "AUC": outcome.auc,
        "balanced accuracy": outcome.balanced_accuracy,
        "F1": outcome.f1,
    }
    rates = ("base_rate", "favourable_rate", "tpr", "fpr", "ppv", "calibration")
    parts = [
        "## Fairness audit",
        f"**{markdown_text(record.verdict.status.capitalize())}.** {markdown_text(record.verdict.headline)}",
        "\n".join(f"- {markdown_text(line)}" for line in record.verdict.findings),
        "### Figures",
        _table(
            ("figure", "value", "95 % interval"),
            [(name, each.value, limits(each)) for name, each in figures.items()],
        ),
        "### Can GCIG be relied on?",
        _table(("number", "value", "how to read it"), trust_lines(record)),
        *_robustness(record),
        "### Groups",
        _table(
            ("group", "rows", "base rate", "favourable decisions", "TPR", "FPR", "PPV", "calibration"),
            [
                (
                    each.group,
                    rows_entry(each.n_rows, record.min_cell),
                    *(getattr(each, rate).value for rate in rates),
                )
                for each in record.groups
            ],
        ),
        "### Columns behind the difference in reasons",
        _table(
            ("column", "share", "most favourable compared with"),
            [(each.column, each.share, each.towards) for each in found.columns[:_COLUMNS]],
        ),
        "### Cautions",
        "\n".join(f"- {markdown_text(line)}" for line in record.verdict.cautions),
        "### Provenance",
        "\n".join(
            f"- {name}: {markdown_text(str(value))}"
            for name, value in (
                ("Model", f"{subject.model_name} ({subject.model_kind})"),
                ("Model SHA-256", subject.model_sha256 or "unknown"),
                ("Data SHA-256", subject.data_sha256 or "unknown"),
                ("Rows", f"{subject.n_rows}, {subject.n_columns} columns"),
                ("Protected attributes", ", ".join(subject.sensitive)),
                ("Positive class", subject.positive),
                ("Favourable class", subject.favourable),
                ("Explained by", subject.explanation),
                ("References", subject.reference),
                ("Definition", ", ".join(f"{k}={v}" for k, v in subject.definition.items())),
                ("Software", ", ".join(f"{k} {v}" for k, v in subject.versions.items())),
                ("Created", subject.created),
            )
        ),
    ]
    return "\n\n".join(parts) + "\n"


def trust_lines(record: AuditRecord) -> list[tuple[str, str, str]]:
    """Return name, value and explanation of the numbers that say whether GCIG can be relied on."""
    found = record.procedural
    values = {item.field: getattr(found, item.field) for item in TRUST_NUMBERS}
    plain = {name: each.value if isinstance(each, Interval) else each for name, each in values.items()}
    return describe_trust(plain, found.undefined)


def _robustness(record: AuditRecord) -> list[str]:
    found = record.robustness
    if found is None:
        return []
    figures = [(each.reference, estimate(each.gcig), estimate(each.other)) for each in found.figures]
    return [
        "### GCIG under other references",
        markdown_text(found.verdict),
        _table(("reference", "GCIG", "other model"), figures),
    ]


def _table(header: Sequence[str], rows: Sequence[Sequence[Value]]) -> str:
    return to_markdown(Table(header, rows))
