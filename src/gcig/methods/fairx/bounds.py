"""Bounds in place of weights: the search for the smallest weights that meet them with confidence.

A bound is met if an upper 90 % confidence limit on the held-out set is within it. If the held-out set is so
small that even an exactly fair network would not show that, the search compares the bound with 1.1 times an
estimate of the gap: the larger of the gap of the held-out rows, less what chance adds, and the gap of
held-out and training rows together. The result says that the bound cannot be shown.

The search trains in stages, each of which starts at the network of a smaller weight. Weights of unmet bounds
grow by a constant factor until all bounds are met or too much AUC is lost; then the last step is halved. If
only the outcome has a bound, and AUC does not suffice for it and for fair reasons, the search is repeated
with the outcome alone, and reasons follow with what AUC is left. Of all networks that were seen, the one with
the highest AUC that meets the bounds is kept, or else the nearest one, so the result is never worse than that
of a smaller weight.

The rows that the limits are computed on also choose the network. That costs little: in simulations with 40
candidates, of which each decides 10 % of the rows anew, 9 to 11 % of the bounds called met are exceeded on
new rows, and 7 to 9 % if each candidate's decisions follow from the one before. A part of the rows set apart
for confirmation would widen every limit by 40 %.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from gcig.core.batch import TrainingRows
from gcig.methods.fairx.selection import HeldOut, decision_counts
from gcig.methods.fairx.settings import FairTraining
from gcig.methods.fairx.training import Candidate, Customise, Student, TrainedNetwork, unchanged
from gcig.metrics.intervals import fair_gap_limit
from gcig.metrics.rates import Floats, expected_range
from gcig.records.trade_off import Bound
from gcig.training.loop import DivergenceError, Epoch, Outcome

PARAMETERS = {"gcig": "max_gcig", "outcome": "max_eo_gap"}
_FIGURES = {"gcig": "gcig", "outcome": "outcome_gap"}
_STAGE_SHARE = 0.4  # epochs of a stage that starts at a neighbour, relative to a whole training
_FACTOR = 2.0  # between the weights of two stages
_LARGEST_WEIGHT = 10.0
_AIM_SCALE = 1.1  # of a bound that cannot be shown: gaps on new rows are larger than those seen in training
_UNMET = 100.0  # more than any loss of AUC costs
_AUC_PRICE = 150.0  # 0.001 of AUC is worth 15 % of the teacher's GCIG
_F1_TOLERANCE, _F1_PRICE = 0.015, 50.0  # a further 0.02 of F1 is worth all of a bound
_EFFECT_TOLERANCE = 0.005  # of the attribute's effect, which is measured on a thousand rows
_LATER_SHARES = (0.3, 1.0)  # of the weight of GCIG, if it follows the outcome
_GOOD_RATES = (0.1, 0.9)  # rates by label of a good model, to judge bounds before there is any model


def check_bounds(measured: Mapping[str, float], held_out: HeldOut, fair_limit: float) -> dict[str, Bound]:
    """Compare a network's measurements on the held-out set with the bounds, by parameter."""
    found = {}
    for term, bound in held_out.settings.bounds.items():
        figure = _FIGURES[term]
        found[PARAMETERS[term]] = Bound(
            name=PARAMETERS[term],
            bound=float(bound),
            value=measured[figure],
            limit=measured[f"{figure}_limit"],
            fair_limit=fair_limit if term == "outcome" else 0.0,
            n_rows=len(held_out.rows if term == "outcome" else held_out.explained),
        )
    return found


def fair_limit_before_training(held_out: HeldOut) -> float:
    """Return the limit of an exactly fair model that decides nine of ten rows of each label correctly.

    It is lower than that of most models, so a bound below it cannot be shown whatever is learned.
    """
    rows, outcome = held_out.rows, held_out.settings.outcome
    sizes = held_out.membership.sum(-1).double().cpu().numpy()
    if outcome == "demographic_parity":
        rates = np.array([float(rows.labels.double().mean())])
    else:
        rates = np.array(_GOOD_RATES[-len(sizes) :])
    return fair_gap_limit(rates, sizes)


def fair_gap(margins: Tensor, held_out: HeldOut) -> tuple[float, float]:
    """Return the limit and the expected gap of an exactly fair model with the rates of these decisions."""
    selected, sizes = decision_counts(margins, held_out.membership)
    rates: Floats = selected.sum(axis=1) / sizes.sum(axis=1)
    expected = sum(expected_range(row[row > 0], float(rate)) for row, rate in zip(sizes, rates, strict=True))
    return fair_gap_limit(rates, sizes), expected


def train_within_bounds(
    network: nn.Module,
    data: TrainingRows,
    settings: FairTraining,
    *,
    generator: torch.Generator,
    held_out: HeldOut,
    trained: bool | None = False,
    customise: Customise = unchanged,
) -> tuple[TrainedNetwork, dict[str, Bound]]:
    """Train a network in place towards the bounds of the settings; see `train_fairly` for the parameters.

    Returns
    -------
    TrainedNetwork, dict of Bound
        The record of all stages, and what was reached on the held-out set, by parameter.
    """
    student = Student.of_teacher(
        network, data, settings, generator=generator, held_out=held_out, trained=trained, customise=customise
    )
    plain = student.teacher.network
    lowest = noise = math.nan
    if settings.max_eo_gap is not None:
        lowest, noise = fair_gap(held_out.logits(plain) - held_out.cut(plain), held_out)
    best = BoundSearch(student, settings.bounds, lowest, noise).run()
    return student.keep(best), check_bounds(best.measured, held_out, lowest)


@dataclass(frozen=True)
class Stage:
    """One stage of the search.

    Attributes
    ----------
    weights : dict
        The weights that were asked for.
    candidate : Candidate
        The network that the stage ended with.
    epoch : int
        The epoch of the whole search that this network is of.
    """

    weights: dict[str, float]
    candidate: Candidate
    epoch: int

    def braked(self, term: str) -> bool:
        """Return whether AUC kept a weight below half of what was asked for until the last epoch."""
        last = self.candidate.outcome.history[-1].metrics
        return last[f"weight_{term}"] < 0.5 * self.weights[term]


@dataclass
class BoundSearch:
    """The search for the smallest weights at which all bounds are met.

    Parameters
    ----------
    student : Student
    bounds : mapping of term to float
    fair_limit : float
        The limit of the outcome gap that an exactly fair model would have; a smaller bound cannot be shown.
    noise : float
        The outcome gap that an exactly fair model would have on average.

    Attributes
    ----------
    stages : list of Stage
        Everything that was trained, in order.
    """

    student: Student
    bounds: Mapping[str, float]
    fair_limit: float
    noise: float
    stages: list[Stage] = field(default_factory=list, init=False)
    history: list[Epoch] = field(default_factory=list, init=False)

    def run(self) -> Candidate:
        """Train until the bounds are met; return the best candidate, with the history of all stages."""
        weights = dict(self.student.settings.weights)
        self._search(weights)
        reasons = 0.0 if "gcig" in self.bounds else weights["gcig"]
        if reasons and not any(map(self._meets, self.stages)):
            if self.stages[-1].weights["gcig"]:
                self._search({**weights, "gcig": 0.0})
            stage = self._best
            for share in _LATER_SHARES:
                stage = self._train({**stage.weights, "gcig": share * reasons}, stage)
        best = self._best
        outcome = Outcome(tuple(self.history), best.epoch)
        braked = any(stage.candidate.braked for stage in self.stages)
        return replace(best.candidate, outcome=outcome, braked=braked)

    @property
    def _best(self) -> Stage:
        return min(self.stages, key=lambda stage: self._rank(stage.candidate))

    def _search(self, weights: dict[str, float]) -> None:
        """Raise the weights of unmet bounds from a first stage on; if they are met, halve the last step."""
        low = high = self._train(weights, None)
        while not self._meets(high) and (raised := self._raise(high)):
            low, high = high, self._train(raised, high)
        if self._meets(high) and high is not low:
            self._train(_between(low.weights, high.weights), low)

    def _train(self, weights: dict[str, float], start: Stage | None) -> Stage:
        n_epochs = self.student.settings.loop.max_epochs
        if start is not None:
            n_epochs = math.ceil(_STAGE_SHARE * n_epochs)
        try:
            candidate = self.student.train(
                weights,
                n_epochs=n_epochs,
                start=None if start is None else start.candidate,
                prefer=self._prefer,
            )
        except DivergenceError:
            if start is None:
                raise
            return Stage(weights, start.candidate, start.epoch)  # its weights were not reached
        before, kept = len(self.history), candidate.outcome.best_epoch
        for epoch in candidate.outcome.history:
            self.history.append(replace(epoch, number=before + epoch.number))
        unchanged = 0 if start is None else start.epoch
        self.stages.append(Stage(weights, candidate, before + kept if kept else unchanged))
        return self.stages[-1]

    def _raise(self, stage: Stage) -> dict[str, float] | None:
        """Return larger weights of the bounds that are not met; None if AUC forbids even the present ones.

        The weight of a term without a bound stays at what AUC allowed.
        """
        raised = {
            term: min(_LARGEST_WEIGHT, _FACTOR * stage.weights[term])
            for term in self.bounds
            if self._excess(stage.candidate.measured, term) > 1 and not stage.braked(term)
        }
        if all(weight == stage.weights[term] for term, weight in raised.items()):
            return None
        others = {term: weight for term, weight in stage.candidate.weights.items() if term not in self.bounds}
        return {**stage.weights, **others, **raised}

    def _excess(self, measured: Mapping[str, float], term: str) -> float:
        """Return the figure that is aimed at, relative to its bound; more than 1 if it is not met."""
        bound = self.bounds[term]
        if term == "gcig":
            value = measured["gcig_limit"]
        elif bound >= self.fair_limit:
            value = measured["outcome_gap_limit"]
        else:  # the pooled gap is less noisy than that of the held-out rows, but too optimistic
            unbiased = math.sqrt(max(0.0, measured["outcome_gap"] ** 2 - self.noise**2))
            value = max(unbiased, measured["outcome_gap_pooled"]) * _AIM_SCALE
        return value / bound if bound > 0 else math.inf

    def _largest_excess(self, measured: Mapping[str, float]) -> float:
        return max(self._excess(measured, term) for term in self.bounds)

    def _meets(self, stage: Stage) -> bool:
        return self._largest_excess(stage.candidate.measured) <= 1

    def _prefer(self, measured: Mapping[str, float]) -> float:
        """Return what an epoch is chosen by: first that bounds are met, then AUC and reasons.

        The effect of the protected attribute must not exceed the teacher's, and a gap should not be closed by
        deciding fewer people positive, which shows in F1.
        """
        plain = self.student.teacher.measured
        more_effect = measured["attribute_effect"] - plain["attribute_effect"] > _EFFECT_TOLERANCE
        f1_lost = _F1_PRICE * max(0.0, plain["f1"] - measured["f1"] - _F1_TOLERANCE)
        excess = self._largest_excess(measured)
        if not excess <= 1:
            return _UNMET * (1 + more_effect) + excess + f1_lost
        kinds = ("gcig", "gcig_members")
        left = sum(measured[kind] / max(plain[kind], 1e-12) for kind in kinds) / len(kinds)
        return _UNMET * more_effect + _AUC_PRICE * measured["auc_lost"] + left + f1_lost

    def _rank(self, candidate: Candidate) -> tuple[bool, float]:
        """Return what is minimised over stages: networks within the limits come first."""
        return not candidate.within_limits, self._prefer(candidate.measured)


def _between(low: Mapping[str, float], high: Mapping[str, float]) -> dict[str, float]:
    """Return the geometric mean of two sets of weights; that of 0 and the first weight is half of it.

    >>> _between({"gcig": 0.0, "outcome": 0.1}, {"gcig": 0.05, "outcome": 0.4})
    {'gcig': 0.025, 'outcome': 0.2}
    """
    return {term: math.sqrt(low[term] * high[term]) if low[term] > 0 else high[term] / 2 for term in high}
