"""How often an audit calls a model without gradients: the most rows that each of its parts scores."""

import sys

from gcig._validation import InputError
from gcig.adapters import ShapleyExplainer
from gcig.auditing.rows import NEIGHBOUR_ROWS, max_described
from gcig.auditing.subject import Audited, Options
from gcig.metrics.members import N_STRATA
from gcig.records.formatting import count


def announce_calls(audited: Audited, options: Options) -> None:
    """Say how many rows an audit lets the model score; raise an error if they exceed `max_calls`."""
    parts = count_calls(audited, options)
    if not parts:
        return
    total, of_parts = sum(parts.values()), ", ".join(f"{part} {count(rows)}" for part, rows in parts.items())
    if options.max_calls is not None and total > options.max_calls:
        raise InputError(
            f"is {count(options.max_calls)}, but the audit lets the model score up to {count(total)} rows: "
            f"{of_parts}. Raise it to that, lower max_rows_explained and n_shuffles, or audit fewer rows or "
            "columns.",
            argument="max_calls",
        )
    if options.progress:
        print(f"This audit lets the model score at most {count(total)} rows: {of_parts}.", file=sys.stderr)


def count_calls(audited: Audited, options: Options) -> dict[str, int]:
    """Return the most rows that each part of an audit scores; no parts for a model with gradients."""
    explainer, source = audited.adapted.explainer, audited.source
    if not isinstance(explainer, ShapleyExplainer):
        return {}
    budget, n_rows, n_groups = explainer.budget, source.n_rows, len(source.group_names)
    pairs, n_columns = explainer.count_pairs(options.definition), len(explainer.encoding.names)
    coarse, draws = budget.shuffled_steps or pairs, options.n_shuffles
    explained = min(n_rows, options.max_rows_explained or budget.rows or n_rows)
    probe = min(explained, budget.probe_rows)
    few, tried = min(probe, budget.shuffled_rows), min(probe, budget.stability_rows)
    panel, cells = min(explained, budget.member_rows), 2 * n_groups

    def explain(rows: int, pairs: int, sets: int = 1, passes: int = 1) -> int:
        """Count the scores of rows relative to sets of references, in some passes over the rows."""
        points = explainer.count_points(pairs, random=explainer.encoding.random)
        return rows * (passes * (1 + explainer.n_controlled_levels) + sets * n_groups * points)

    of_stratum = explainer.count_points(budget.members // N_STRATA, random=True)
    members = panel * 2 * (1 + n_groups * N_STRATA * of_stratum)  # two halves
    sets = 1 + (budget.shuffles if draws is None else draws) + min(budget.resamples, options.n_bootstrap)
    parts = {
        "decisions": n_rows,
        "reasons": explain(explained, pairs) + 2 * explain(probe, pairs),  # the probe also sets the scales
        "members": members,
        "trust": cells * (budget.offset_rows + budget.reference_draws)
        + min(n_rows, budget.importance_rows) * (1 + n_columns)
        + min(n_rows, budget.exchanged_rows) * (2 + len(source.attributes)),
        "chance": explain(few, coarse, sets, passes=2 + sets // 8),
        "stability": explain(tried, pairs, sets=3) + explain(tried, 2 * pairs),
    }
    if options.include_rows:
        shown = min(explained, page := max_described(n_columns, n_groups))
        neighbours = min(page, cells * shown)
        searched = min(n_rows, NEIGHBOUR_ROWS)
        parts["described rows"] = 2 * shown + searched + 2 * neighbours + explain(neighbours, pairs)
    if options.robustness:
        kinds = explain(panel, coarse, sets=14, passes=6)  # 4 kinds and their halves, all rows, another norm
        parts["robustness"] = kinds + members + explain(min(n_rows, budget.probe_rows), pairs)
    return parts
