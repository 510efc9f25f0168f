"""Trade-offs on a cluster: the family of `FairXClassifier.path`, trained where a backend runs trials.

Every model of a family starts at its neighbour, so a family is one trial: a cluster trains it on one worker.
"""

import warnings
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, cast

import torch

from gcig._warnings import warn_caller
from gcig.benchmark.backends import Backend, LocalBackend, Work, WorkerDeath
from gcig.benchmark.clusters import make_backend
from gcig.benchmark.store import RunError
from gcig.benchmark.trials import Table, Trial
from gcig.methods.fairx.estimator import FairXClassifier
from gcig.methods.fairx.tradeoff import TradeOff


def train_family(
    estimator: FairXClassifier,
    X: Any,
    y: Any,
    *,
    sensitive_features: Any,
    sample_weight: Any = None,
    measured_on: Mapping[str, Any] | None = None,
    backend: str | Backend = "local",
    address: str | None = None,
) -> TradeOff:
    """Train the family of `FairXClassifier.path` in this process or on a worker of a cluster.

    Parameters
    ----------
    estimator : FairXClassifier
    X, y, sensitive_features, sample_weight
        As in `FairXClassifier.path`.
    measured_on : mapping, optional
        Arguments of `TradeOff.measure`, if the models are to be measured on other rows.
    backend, address
        As in `gcig.compare`. Every backend gives the same family, to the last bit, on the same kind of
        processor with the same versions.

    Examples
    --------
    >>> import gcig
    >>> data = gcig.load_dataset("german", include_sensitive=False)
    >>> model = gcig.FairXClassifier(max_epochs=1, random_state=0)
    >>> family = train_family(model, data.X, data.y, sensitive_features=data.sensitive_features)
    >>> family.models[0].predict(data.X).shape
    (1000,)
    """
    fitted_on = {
        "X": X,
        "y": y,
        "sensitive_features": sensitive_features,
        "sample_weight": sample_weight,
    }
    place = make_backend(backend, address=address)
    work = _FamilyWork(estimator, torch.get_num_threads())
    if isinstance(place, LocalBackend):
        return work.train(fitted_on, measured_on)
    trial = Trial(dataset="family", data_hash="", method="fairx")
    rows = {trial.dataset: cast("Table", (fitted_on, measured_on))}
    with closing(place.run([trial], rows, cast("Work", work))) as outcomes:
        (_, outcome), *_ = outcomes
    if isinstance(outcome, WorkerDeath):
        raise RunError(f"the family was not trained: {outcome.cause}. Run it again, or use fewer rows.")
    family, caught = cast("tuple[TradeOff, list[Warning]]", outcome)
    for each in caught:
        warn_caller(each)
    return family


@dataclass(frozen=True, eq=False)
class _FamilyWork:
    """The work on the only trial; picklable."""

    estimator: FairXClassifier
    n_threads: int  # of the caller: the number may change the last bits of measurements

    def __call__(self, trial: Trial, rows: Any) -> tuple[TradeOff, list[Warning]]:  # noqa: ARG002 (there is one)
        """Return the family and the warnings of its training, for the caller to issue."""
        before = torch.get_num_threads()
        torch.set_num_threads(self.n_threads)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                family = self.train(*rows)
        finally:
            torch.set_num_threads(before)
        return family, [each.message for each in caught if isinstance(each.message, Warning)]

    def train(self, fitted_on: Mapping[str, Any], measured_on: Mapping[str, Any] | None) -> TradeOff:
        """Train the family, and measure it on other rows if there are any."""
        family = self.estimator.path(**fitted_on)
        return family if measured_on is None else family.measure(**measured_on)
