"""The least that a bound on the EO gap costs: `python -m benchmarks.frontier`.

Of all decisions with a given selection rate, those of the form

    p(x) + kappa[g] - sum over labels y and groups h of mu[y, h] P(y, h | x)  >=  c

lose the fewest correct ones at a given equalized odds gap: the Bayes-optimal rule under a constraint on
rates (Menon and Williamson 2018, "The cost of fairness in binary classification"). p is the plain network's
probability, averaged over the values of the protected columns. kappa is the only part that depends on the
protected attribute itself, and is scaled so that exchanging the attribute changes no more decisions than it
does for the plain network. P(h | x, y) is a logistic regression that does not see the protected columns. The
few numbers mu and kappa are found by dual ascent on the training rows, so they hardly overfit.

The rule is a yardstick, not a model: it changes decisions next to the threshold by how much a person
resembles a group. Its AUC is that of the plain network's scores, with the rows whose decision changes moved
just across the threshold; hardly any score with these decisions ranks better.

"Network" is one of the same size that starts at the plain network, keeps its predictions, and lowers the gap
to the bound, without any other fairness term. Each row counts in the rate of every cell (y, h) with the
probability P(y, h | x), with its protected columns set to those of group h. The probabilities are those of
logistic regressions that have not seen the row: a network that is trained on the rates of the rows themselves
learns by heart which rows belong to which group, and its gap on new rows is larger. A smooth score cannot
change decisions next to the threshold alone, so it loses more AUC than the rule at the same gap.

    python -m benchmarks.frontier [--datasets adult bank compas] [--folds 10] [--jobs 2]
"""

import argparse
import warnings
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from joblib import Parallel, delayed
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, roc_auc_score
from sklearn.model_selection import cross_val_predict
from torch.nn.functional import binary_cross_entropy_with_logits as bce

import gcig
from gcig.data.splitting import k_folds
from gcig.methods.unconstrained import UnconstrainedClassifier
from gcig.metrics.intervals import rate_gap
from gcig.metrics.rates import Confusion

PROTECTED = {"adult": "sex", "compas": "race"}  # bank: the groups are ranges of age, a number
BOUNDS = {"adult": (0.05,), "bank": (0.05,), "compas": (0.2, 0.1)}
STEPS, RATE = 600, 0.5  # of dual ascent
N_STEPS, BATCH, LEARNING_RATE = 2_000, 8_192, 0.02  # of the network that lowers the gap
TEMPERATURE = 0.1  # of soft decisions, in logits
# Weights of the gap, of the attribute effect and of the selection rate, relative to the cross-entropy.
GAP_WEIGHT, EFFECT_WEIGHT, SELECTION_WEIGHT = 0.3, 4.0, 0.4
EFFECT_SHARE = 0.95  # of the plain network's attribute effect, since it is larger on new rows
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """Rows of a table as the rule sees them."""

    y: NDArray[np.int64]
    groups: NDArray[np.int64]
    plain: Floats  # (n,); the plain network's probabilities
    neutral: Floats  # (n,); averaged over the values of the protected columns
    cells: Floats  # (n, 4); P(y, h | x) for both labels and groups

    def gap(self, decided: NDArray[np.bool_]) -> float:
        """Return the equalized odds gap of decisions."""
        counts = Confusion.count(self.y, decided.astype(int), self.groups, 2).counts
        return float(rate_gap(counts[..., 1].T, counts.sum(axis=2).T))


@dataclass(frozen=True)
class Rule:
    """The parameters of the rule."""

    mu: Floats  # (4,)
    kappa: float  # added for the second group, subtracted for the first
    cut: float

    def scores(self, rows: Rows, groups: NDArray[np.int64]) -> Floats:
        """Return the scores of rows as members of these groups; from 0 they are decided positive."""
        found: Floats = rows.neutral - rows.cells @ self.mu + self.kappa * (2 * groups - 1) - self.cut
        return found

    def effect(self, rows: Rows) -> float:
        """Return the share of decisions that change if only the protected attribute is exchanged."""
        own, other = (self.scores(rows, np.full(len(rows.y), group)) >= 0 for group in (0, 1))
        return float((own != other).mean())

    def ranked(self, rows: Rows) -> Floats:
        """Return the plain scores, with rows whose decision changes moved just across the threshold."""
        scores, plain = self.scores(rows, rows.groups), rows.plain - 0.5
        changed = (scores >= 0) != (plain >= 0)
        return np.where(changed, 1e-6 * scores, plain)


def find_rule(rows: Rows, bound: float, most_effect: float) -> Rule:
    """Return the rule that changes the fewest decisions within a bound, or else has the smallest gap."""
    selected = int((rows.plain >= 0.5).sum())
    mu, kappa = np.zeros((2, 2)), 0.0
    best: tuple[float, float] = (np.inf, np.inf)
    for step in range(STEPS):
        rule = Rule(mu.ravel(), kappa, 0.0)
        scores = rule.scores(rows, rows.groups)
        rule = Rule(rule.mu, kappa, float(np.sort(scores)[-selected]))
        decided = scores >= rule.cut
        gap, effect = rows.gap(decided), rule.effect(rows)
        found = max(gap, bound), float((decided != (rows.plain >= 0.5)).mean())
        if effect <= most_effect and found < best:
            best, kept = found, rule
        rates = np.array(
            [[decided[(rows.y == y) & (rows.groups == g)].mean() for g in (0, 1)] for y in (0, 1)]
        )
        excess = rates - rates.mean(axis=1, keepdims=True)
        rate = RATE * (1 - step / STEPS)
        if gap > bound:
            mu = mu + rate * excess
            kappa -= rate * float(np.diff(excess).mean()) / 2
        else:
            mu = mu * (1 - rate)
        if effect > most_effect:
            kappa *= most_effect / effect
    return kept


def lower_gap(
    part: "_Part", rows: Rows, bound: float, most_effect: float, usual: list[Floats]
) -> torch.nn.Module:
    """Return a copy of a network that was trained until its expected gap on these rows is a bound."""
    network = deepcopy(part.network).train()
    generator = torch.Generator().manual_seed(0)
    as_member = torch.stack([torch.from_numpy(part.exchanged(values)) for values in usual])
    own, wanted = torch.from_numpy(part.inputs), torch.from_numpy(rows.plain).float()
    codes = 2 * rows.y + rows.groups
    if part.protected.size:
        model = LogisticRegression(C=0.3, max_iter=300)
        known = cross_val_predict(model, part.visible, codes, cv=5, method="predict_proba")
    else:  # the groups are known from the other columns
        known = np.eye(4)[codes]
    cells = torch.from_numpy(known).float().view(-1, 2, 2)
    optimizer = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, LEARNING_RATE, total_steps=N_STEPS, pct_start=0.1
    )
    for _ in range(N_STEPS):
        chosen = torch.randperm(len(own), generator=generator)[:BATCH]
        weights = cells[chosen].permute(1, 2, 0)
        weights = weights / weights.sum(-1, keepdim=True)
        by_group = torch.stack([network(each[chosen]) for each in as_member])
        soft, hard = torch.sigmoid(by_group / TEMPERATURE), (by_group >= 0).float()
        decided = soft + (hard - soft).detach()  # the values are those of decisions
        rates = (weights * decided).sum(-1)
        gap = (rates[:, 0] - rates[:, 1]).abs().sum()
        effect = (soft[0] - soft[1]).abs().mean()
        effect = effect + ((hard[0] != hard[1]).float().mean() - effect).detach()
        logits = network(own[chosen])
        selection = torch.sigmoid(logits / TEMPERATURE) - torch.sigmoid(wanted[chosen].logit() / TEMPERATURE)
        loss = bce(logits, wanted[chosen]) + GAP_WEIGHT * torch.relu(gap - bound)
        loss = loss + EFFECT_WEIGHT * torch.relu(effect - most_effect)
        optimizer.zero_grad()
        (loss + SELECTION_WEIGHT * selection.mean().abs()).backward()
        optimizer.step()
        schedule.step()
    return network.eval()


def measure_fold(name: str, number: int) -> list[list[tuple[float, ...]]]:
    """Return, per bound, the figures of the rule, of the network within the bound, and of the plain one."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    data = gcig.load_dataset(name)
    y = data.y.to_numpy()
    groups = np.unique(data.sensitive_features.astype(str).to_numpy(), return_inverse=True)[1]
    train, test = list(k_folds(y, groups, n_splits=5, random_state=3 + number // 5))[number % 5]
    model = UnconstrainedClassifier(random_state=number % 5)
    model.fit(data.X.iloc[train], y[train], sensitive_features=groups[train])
    fitted, new = (
        _Part(model.module_, model.encode(data.X.iloc[part]), y[part], groups[part], _protected(model, name))
        for part in (train, test)
    )
    by_label = [
        LogisticRegression(max_iter=300).fit(
            fitted.visible[y[train] == label], groups[train][y[train] == label]
        )
        for label in (0, 1)
    ]
    usual = fitted.usual_values()
    rows, new_rows = (part.rows(by_label, usual) for part in (fitted, new))
    auc, f1 = roc_auc_score(new.y, new_rows.plain), f1_score(new.y, new_rows.plain >= 0.5)

    def figures(scores: Floats, new_scores: Floats, effect: float) -> tuple[float, ...]:
        decided = new_scores >= 0
        gaps = rows.gap(scores >= 0), new_rows.gap(decided)
        return (*gaps, auc - roc_auc_score(new.y, new_scores), f1 - f1_score(new.y, decided), effect)

    found = []
    for bound in BOUNDS[name]:
        most_effect = EFFECT_SHARE * fitted.effect(usual)
        rule = find_rule(rows, bound, most_effect)
        ranked = (rule.ranked(each) for each in (rows, new_rows))
        network = lower_gap(fitted, rows, bound, most_effect, usual)
        learned = [replace(part, network=network) for part in (fitted, new)]
        found.append(
            [
                figures(*ranked, rule.effect(new_rows)),
                figures(*(part.logits() for part in learned), learned[1].effect(usual)),
                figures(rows.plain - 0.5, new_rows.plain - 0.5, new.effect(usual)),
            ]
        )
    return found


def _protected(model: Any, name: str) -> NDArray[np.intp]:
    """Return the positions of the encoded columns of the protected attribute."""
    if name not in PROTECTED:
        return np.array([], dtype=np.intp)
    columns = list(model.feature_names_in_)
    return np.flatnonzero(model.encoder_.origin_ == columns.index(PROTECTED[name]))


@dataclass(frozen=True)
class _Part:
    """The training or test rows of a fold, encoded, and a network."""

    network: torch.nn.Module
    inputs: NDArray[np.float32]
    y: NDArray[np.int64]
    groups: NDArray[np.int64]
    protected: NDArray[np.intp]  # positions of the columns of the protected attribute

    @property
    def visible(self) -> NDArray[np.float32]:
        """The inputs without the protected columns."""
        return np.delete(self.inputs, self.protected, axis=1)

    def usual_values(self) -> list[Floats]:
        """Return the most frequent values of the protected columns in each group."""
        found = []
        for group in (0, 1):
            own = self.inputs[self.groups == group][:, self.protected]
            values, counts = np.unique(own, axis=0, return_counts=True)
            found.append(values[counts.argmax()])
        return found

    def exchanged(self, protected: Floats) -> NDArray[np.float32]:
        """Return the inputs with these values of the protected columns."""
        inputs = self.inputs.copy()
        inputs[:, self.protected] = protected
        return inputs

    def logits(self, protected: Floats | None = None) -> Floats:
        inputs = self.inputs if protected is None else self.exchanged(protected)
        with torch.no_grad():
            found: Floats = self.network(torch.from_numpy(inputs)).double().numpy()
        return found

    def effect(self, usual: list[Floats]) -> float:
        decided = [self.logits(each) >= 0 for each in usual]
        return float((decided[0] != decided[1]).mean())

    def rows(self, by_label: list[LogisticRegression], usual: list[Floats]) -> Rows:
        neutral = _sigmoid(np.mean([self.logits(each) for each in usual], axis=0))
        of_label = np.stack([1 - neutral, neutral])
        in_group = np.stack([model.predict_proba(self.visible) for model in by_label])
        cells = (of_label[:, :, None] * in_group).transpose(1, 0, 2).reshape(len(self.y), 4)
        return Rows(self.y, self.groups, _sigmoid(self.logits()), neutral, cells)


def _sigmoid(logits: Floats) -> Floats:
    found: Floats = 1 / (1 + np.exp(-logits))
    return found


def main() -> None:
    """Print two lines per table and bound: means over folds, on test rows except for the first figure."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.frontier", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--datasets", nargs="+", choices=list(BOUNDS), default=list(BOUNDS))
    parser.add_argument("--folds", type=int, default=10, help="out of ten, of two partitions")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    names = ("gap, training", "gap, test", "AUC lost", "F1 lost", "effect")
    print(f"{'table':8}{'bound':>6}  {'':8}" + "".join(f"{name:>15}" for name in names))
    for name in arguments.datasets:
        folds = (delayed(measure_fold)(name, number) for number in range(arguments.folds))
        means = np.mean(Parallel(n_jobs=arguments.jobs)(folds), axis=0)
        lines = [("plain", "", means[0, 2])]
        for bound, (rule, network, _) in zip(BOUNDS[name], means, strict=True):
            lines += [("rule", f"{bound:g}", rule), ("network", f"{bound:g}", network)]
        for kind, bound, figures in lines:
            print(
                f"{name:8}{bound:>6}  {kind:8}" + "".join(f"{figure:15.4f}" for figure in figures), flush=True
            )


if __name__ == "__main__":
    main()
