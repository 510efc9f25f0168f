"""An audit as a section of a model card, in Markdown."""

import re
from collections.abc import Sequence

from gcig.records.audit import AuditRecord, GroupAudit
from gcig.records.base import Interval
from gcig.records.formatting import limits, number
from gcig.records.trust import TRUST_NUMBERS, describe_trust

_COLUMNS = 10


def model_card(record: AuditRecord) -> str:
    """Write headings, sentences and tables; names from the user's table are escaped."""
    subject, found, outcome = record.subject, record.procedural, record.outcome
    few = f"fewer than {record.min_cell}"
    parts = [
        "## Fairness audit",
        f"**{_text(record.verdict.status.capitalize())}.** {_text(record.verdict.headline)}",
        "\n".join(f"- {_text(line)}" for line in record.verdict.findings),
        "### Figures",
        _table(
            ("figure", "value", "95 % interval"),
            [
                ("GCIG", found.interval),
                ("GCIG with shuffled groups (noise floor)", found.noise_floor),
                ("GCIG beyond chance", found.excess),
                ("equalized odds gap", outcome.eo_gap),
                ("ratio of favourable decisions (four fifths)", outcome.selection_rate_ratio),
                ("AUC", outcome.auc),
                ("balanced accuracy", outcome.balanced_accuracy),
                ("F1", outcome.f1),
            ],
        ),
        "### Can GCIG be relied on?",
        _rows(("number", "value", "how to read it"), trust_lines(record)),
        *_robustness(record),
        "### Groups",
        _rows(
            ("group", "rows", "base rate", "favourable decisions", "TPR", "FPR", "PPV", "calibration"),
            [
                (
                    g.group,
                    few if g.n_rows is None else str(g.n_rows),
                    *(number(r.value) for r in _rates(g)),
                )
                for g in record.groups
            ],
        ),
        "### Columns behind the difference in reasons",
        _rows(
            ("column", "share", "most favourable compared with"),
            [(c.column, number(c.share), c.towards) for c in found.columns[:_COLUMNS]],
        ),
        "### Cautions",
        "\n".join(f"- {_text(line)}" for line in record.verdict.cautions),
        "### Provenance",
        "\n".join(
            f"- {name}: {_text(str(value))}"
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
    figures = [
        (each.reference, *(f"{number(i.value)} {limits(i)}".strip() for i in (each.gcig, each.other)))
        for each in found.figures
    ]
    return [
        "### GCIG under other references",
        _text(found.verdict),
        _rows(("reference", "GCIG", "other model"), figures),
    ]


def _table(header: tuple[str, ...], rows: list[tuple[str, Interval]]) -> str:
    return _rows(header, [(name, number(each.value), limits(each)) for name, each in rows])


def _rows(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *[tuple(map(_text, row)) for row in rows]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _rates(group: GroupAudit) -> tuple[Interval, ...]:
    return group.base_rate, group.favourable_rate, group.tpr, group.fpr, group.ppv, group.calibration


def _text(text: str) -> str:
    """Escape text for Markdown, and for HTML inside it."""
    escaped = re.sub(r"([\\`*_\[\]|#])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;"))
    return " ".join(escaped.replace(">", "&gt;").split())
