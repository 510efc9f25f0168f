"""The record of everything measured of one model on one set of rows, and of one benchmark trial."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from gcig.records.base import Record, flatten, make_frame
from gcig.records.formatting import describe_suppression, html_table, shown, text_table
from gcig.records.trust import Robustness, describe_trust

if TYPE_CHECKING:
    import pandas as pd


LOWEST_AUC = 0.55  # a model below it does not rank
_ALIKE = 0.995  # share of the rows from which decisions count as all alike
_PROCEDURAL, _TRUST = "procedural fairness", "can GCIG be trusted"
# The single values of an evaluation in columns, for notebooks.
_SECTIONS = {
    "utility": (
        *("n_rows", "threshold", "f1", "auc", "accuracy", "balanced_accuracy", "log_loss"),
        *("selection_rate", "collapsed"),
    ),
    "outcome fairness": (
        *("eo_gap", "eo_noise_floor", "eo_worst", "eo_worst_noise_floor", "delta_tpr", "delta_fpr"),
        *("demographic_parity_difference", "selection_rate_ratio", "min_cell"),
    ),
    _PROCEDURAL: (
        *("gcig", "gcig_low", "gcig_high", "gcig_members", "gcig_members_low", "gcig_members_high"),
        *("members_noise", "gcig_label0", "gcig_label1"),
    ),
    _TRUST: (
        *("reference_offset", "faithfulness", "effective_columns", "attribute_effect"),
        *("completeness", "undefined_rows", "gcig_l2", "gcig_encoded", "gcig_raw"),
    ),
}


def has_collapsed(auc: float) -> bool:
    """Return whether a model no longer ranks: its AUC is under 0.55."""
    return auc < LOWEST_AUC


def decides_alike(selection_rate: float) -> bool:
    """Return whether a model decides at least 99.5 % of the rows alike at its threshold."""
    return max(selection_rate, 1 - selection_rate) >= _ALIKE


def describe_degeneracy(collapsed: bool, alike: bool) -> str:
    """Say why equal rates mean nothing; empty for a model that ranks and decides."""
    if collapsed:
        return (
            "The model has collapsed: it ranks rows hardly better than chance, so equal rates say nothing in "
            "its favour."
        )
    if alike:
        return (
            "The model decides nearly everyone alike at its threshold, so equal rates say nothing in its "
            "favour. Choose another threshold."
        )
    return ""


@dataclass(frozen=True, eq=False)
class GroupRates(Record):
    """Rates of one group; a rate is NaN if no row of the group meets its condition."""

    group: str
    n_rows: int
    base_rate: float  # share of rows with label 1
    selection_rate: float  # share of rows predicted 1
    tpr: float  # share predicted 1 among the rows with label 1
    fpr: float  # share predicted 1 among the rows with label 0
    ppv: float  # share with label 1 among the rows predicted 1
    mean_score: float = math.nan  # mean predicted probability of label 1
    calibration: float = math.nan  # mean score minus base rate; positive if overconfident in label 1
    calibration_error: float = math.nan  # expected calibration error over ten bins of equal width


@dataclass(frozen=True, eq=False)
class Evaluation(Record):
    """Everything measured of one model on one set of rows.

    The fields that are single values are the columns of a results table (``scalars``). Fields that begin
    with ``gcig``, ``completeness``, ``undefined_rows``, ``members_noise`` and the four numbers that say
    whether GCIG can be trusted (``reference_offset``, ``faithfulness``, ``effective_columns`` and
    ``attribute_effect``) are NaN or None if only predictions were evaluated.

    Attributes
    ----------
    n_rows, threshold : number of rows; probability from which a row is predicted 1 (NaN if the model has a
        decision rule of its own).
    f1, auc, accuracy, balanced_accuracy, log_loss : utility, for label 1.
    selection_rate : share of rows predicted 1.
    eo_gap, eo_worst : sum and larger of ``delta_tpr`` and ``delta_fpr``.
    eo_noise_floor, eo_worst_noise_floor : the gaps that an exactly fair model with the same rates and cell
        sizes shows on average.
    delta_tpr, delta_fpr : largest minus smallest rate over the groups.
    demographic_parity_difference, selection_rate_ratio : largest minus smallest, and smallest over
        largest, selection rate.
    gcig, gcig_low, gcig_high : GCIG by ``definition``, and its 95 % bootstrap interval over rows with the
        references treated as known; the interval of an audit includes their uncertainty and is wider.
    gcig_l2 : GCIG by ``definition`` with the l2 norm.
    gcig_members, gcig_members_low, gcig_members_high : GCIG relative to members of the cells, with
        attributions averaged over members, and its 95 % bootstrap interval over rows.
    members_noise : the same for two halves of the same group: what is measured if nothing differs.
    gcig_encoded : GCIG with the l1 norm on encoded columns, centred within each one-hot block.
    gcig_raw : GCIG with the l1 norm on encoded columns as they are, which is the paper's.
    gcig_label0, gcig_label1 : means over the rows of each label, by ``definition``.
    completeness : mean of ``|sum of attributions - score difference|`` over mean ``|score difference|``.
    undefined_rows : rows whose attributions vanish; they are left out of every mean of GCIG.
    reference_offset : distance between the logit at a reference and the mean logit of its cell, in standard
        deviations of the logit, averaged over cells. Bad news from about 0.5 on: references are atypical.
    faithfulness : rank correlation over original columns between mean absolute normalised attribution and
        permutation importance of the logit. Bad news under about 0.6: reasons are not what the model uses.
    effective_columns : exp of the entropy of the column shares, on the columns of ``definition``. Bad news
        under 2: GCIG is small for any model of one column.
    attribute_effect : share of decisions that change if only the protected columns change. Bad news if it
        is not near 0: the model uses the protected attribute itself.
    collapsed : whether the model no longer ranks: an AUC under 0.55.
    groups : rates of each group.
    min_cell, suppressed_cells : gaps leave out the rates of cells with fewer than ``min_cell`` rows; the
        names of these cells.
    compared_groups : groups whose references GCIG compares.
    gcig_groups : GCIG over the rows of each group.
    gcig_columns : contribution of each column of ``definition``; they add up to ``gcig``.
    definition : the choices behind ``gcig``.
    undefined : figure -> why it is NaN.
    robustness : GCIG under several references; None unless it was requested.

    Examples
    --------
    >>> from gcig.metrics import evaluate_predictions
    >>> sex = ["f", "f", "f", "m", "m", "m"]
    >>> labels, scores = [0, 1, 1, 0, 0, 1], [0.2, 0.9, 0.4, 0.1, 0.7, 0.8]
    >>> found = evaluate_predictions(labels, scores, sensitive_features=sex, min_cell=1)
    >>> found
    <Evaluation of 6 rows: AUC 0.8889, F1 0.6667, EO gap 1.0000>
    >>> found.groups[0].tpr, found.delta_tpr
    (0.5, 0.5)
    """

    n_rows: int
    threshold: float
    f1: float
    auc: float
    accuracy: float
    balanced_accuracy: float
    log_loss: float
    selection_rate: float
    eo_gap: float
    eo_worst: float
    eo_noise_floor: float
    eo_worst_noise_floor: float
    delta_tpr: float
    delta_fpr: float
    demographic_parity_difference: float
    selection_rate_ratio: float
    collapsed: bool
    groups: tuple[GroupRates, ...]
    min_cell: int = 1
    suppressed_cells: tuple[str, ...] = ()
    gcig: float = math.nan
    gcig_low: float = math.nan
    gcig_high: float = math.nan
    gcig_l2: float = math.nan
    gcig_members: float = math.nan
    gcig_members_low: float = math.nan
    gcig_members_high: float = math.nan
    members_noise: float = math.nan
    gcig_encoded: float = math.nan
    gcig_raw: float = math.nan
    gcig_label0: float = math.nan
    gcig_label1: float = math.nan
    completeness: float = math.nan
    undefined_rows: int | None = None
    reference_offset: float = math.nan
    faithfulness: float = math.nan
    effective_columns: float = math.nan
    attribute_effect: float = math.nan
    compared_groups: tuple[str, ...] = ()
    gcig_groups: Mapping[str, float] = field(default_factory=dict)
    gcig_columns: Mapping[str, float] = field(default_factory=dict)
    definition: Mapping[str, Any] = field(default_factory=dict)
    undefined: Mapping[str, str] = field(default_factory=dict)
    robustness: Robustness | None = None

    @property
    def decides_alike(self) -> bool:
        """True if at least 99.5 % of the rows are decided alike at this threshold.

        Rates are then equal because nothing is decided; another threshold may show differences.
        """
        return decides_alike(self.selection_rate)

    @property
    def degenerate(self) -> bool:
        """True if equal rates say nothing: the model has collapsed, or decides everyone alike."""
        return self.collapsed or self.decides_alike

    def to_frame(self, part: str = "figures") -> "pd.DataFrame":
        """Return a pandas table.

        Parameters
        ----------
        part : {"figures", "groups", "columns"}
            One row of all single values, a row of a results table; one row of rates and GCIG per group; or
            the contribution of each column to GCIG.
        """
        gcig, columns = self.gcig_groups, self.gcig_columns
        parts = {
            "figures": [flatten(self)],
            "groups": [{**flatten(each), "gcig": gcig.get(each.group, math.nan)} for each in self.groups],
            "columns": [{"column": name, "contribution": value} for name, value in columns.items()],
        }
        return make_frame(part, parts)

    def __repr__(self) -> str:
        figures = {"AUC": self.auc, "F1": self.f1, "EO gap": self.eo_gap, "GCIG": self.gcig}
        known = (f"{name} {shown(value)}" for name, value in figures.items() if not math.isnan(value))
        flag = ", collapsed" if self.collapsed else ", decides everyone alike" if self.decides_alike else ""
        return f"<Evaluation of {self.n_rows} rows: {', '.join(known)}{flag}>"

    def __str__(self) -> str:
        rows = [(name, shown(value)) for name, value in self.scalars().items()]
        width = max(len(name) for name, _ in rows)
        lines = [*(f"{name:<{width}}  {value}" for name, value in rows), ""]
        header, *body = self._group_table()
        groups = text_table(header, body, right_aligned=range(1, len(header)))
        return "\n".join([*lines, groups, *self._remarks(), *self._trust_lines()])

    def _repr_html_(self) -> str:
        scalars = self.scalars()
        measured = [
            title for title in _SECTIONS if title not in (_PROCEDURAL, _TRUST) or not math.isnan(self.gcig)
        ]
        columns = [[(name, shown(scalars[name])) for name in _SECTIONS[title]] for title in measured]
        lines = [sum(entries, ()) for entries in zip_longest(*columns, fillvalue=("", ""))]
        header, *body = self._group_table()
        tables = html_table([entry for title in measured for entry in (title, "")], lines)
        remarks = [html_table(("remarks",), [(line,) for line in self._remarks()])] if self._remarks() else []
        return "".join([tables, html_table(header, body), *remarks])

    def _trust_lines(self) -> list[str]:
        """Return a heading and one line per number that says whether GCIG can be relied on."""
        numbers = describe_trust(self.scalars(), self.undefined)
        robust = [] if self.robustness is None else [self.robustness.verdict]
        lines = [f"{name}: {value}. {reading}" for name, value, reading in numbers]
        return ["", *robust, *lines] if lines else robust

    def _remarks(self) -> list[str]:
        """Return the sentences that belong with the numbers."""
        notes = (
            describe_suppression(self.suppressed_cells, self.min_cell),
            describe_degeneracy(self.collapsed, self.decides_alike),
        )
        return [note for note in notes if note]

    def _group_table(self) -> list[tuple[str, ...]]:
        """Return a header and one line per group: the rates, and GCIG if it was measured."""
        names = [f.name for f in fields(GroupRates)]
        table: list[tuple[str, ...]] = [(*names, "gcig")] if self.gcig_groups else [tuple(names)]
        for rates in self.groups:
            entries = tuple(shown(getattr(rates, name)) for name in names)
            gcig = (shown(self.gcig_groups.get(rates.group, math.nan)),) if self.gcig_groups else ()
            table.append((*entries, *gcig))
        return table


# Methods whose decisions follow from group thresholds, which the explained logit does not contain.
_POST_PROCESSED = frozenset({"hardt"})
UNRANKED_NOTE = "Hardt has no rank in GCIG: its group thresholds are not part of the logit that is explained."


def is_ranked(method: str, measure: str) -> bool:
    """Return whether a method may be ranked by a measure: post-processing has no rank in GCIG.

    >>> is_ranked("hardt", "gcig_raw"), is_ranked("hardt", "eo_gap"), is_ranked("fairx", "gcig_raw")
    (False, True, True)
    """
    return method not in _POST_PROCESSED or not measure.startswith("gcig")


@dataclass(frozen=True, eq=False)
class FoldResult(Record):
    """One method, fitted on the training rows of one fold and measured on its test rows."""

    dataset: str
    method: str
    variant: str  # distinguishes settings of one method within an experiment
    parameters: Mapping[str, Any]  # of the estimator
    fold: int
    seed: int  # of the split
    evaluation: Evaluation | None  # None if the fit failed
    fit_seconds: float
    error: str | None = None  # one line if the fit failed
    # Out-of-fold rows as columns (position, label, group code, score, prediction); if decisions are random,
    # the prediction is the probability of a decision for 1.
    predictions: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # one line each
    worker_died: bool = False  # the worker was killed, perhaps out of memory; running again repeats the trial
    repeat: int = 0  # number of the fit among several on the same rows with different seeds
