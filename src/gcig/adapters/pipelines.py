"""Pipelines of scikit-learn that are differentiable.

A pipeline whose steps transform each column separately (scalers, imputers, one-hot encoders, column
transformers of these) and whose last step is a linear classifier or an estimator of this package is explained
by integrated gradients on the transformed columns.
"""

from dataclasses import dataclass
from typing import Any

from sklearn.pipeline import Pipeline

from gcig._validation import check_features
from gcig.adapters.base import DifferentiableModel, Outputs, default_names
from gcig.adapters.estimators import GcigModel
from gcig.adapters.explainers import Rows
from gcig.adapters.linear import LinearModel
from gcig.adapters.origin import Origin, origin_of_steps


@dataclass(frozen=True, kw_only=True, eq=False)
class DifferentiablePipeline(DifferentiableModel):
    """A pipeline that encodes each column separately and ends in a linear classifier or a gcig estimator.

    ``last`` is the adapted last step; it takes the output of the steps before it.
    """

    last: DifferentiableModel

    @classmethod
    def of(cls, model: Any, X: Any) -> "DifferentiablePipeline | None":
        """Adapt a pipeline of this kind, naming its columns as it or ``X`` does; None for other models."""
        if not isinstance(model, Pipeline):
            return None
        step = model.steps[-1][1]
        kind = next((each for each in (GcigModel, LinearModel) if each.fits(step)), None)
        if kind is None:
            return None
        origin = origin_of_steps([step for _, step in model.steps[:-1]], int(model.n_features_in_))
        last: DifferentiableModel = kind.wrap(step)
        if origin is None or len(origin) != len(last.original_names):
            return None
        named = getattr(model, "feature_names_in_", None)
        if named is None:
            named = default_names(model.n_features_in_) if X is None else check_features(X).columns
        names = tuple(map(str, named))
        encodes_again = len(last.columns) != len(origin)  # the last step has an encoder of its own
        return cls(
            model=model,
            last=last,
            module=last.module,
            columns=last.columns if encodes_again else _encoded_names(model, names, origin),
            origin=origin[last.origin],
            original_names=names,
            classes=last.classes,
            groups=last.groups,
            baselines=last.baselines,
            blocks=last.blocks,
            probabilistic=last.probabilistic,
            threshold=last.threshold,
            kind=f"scikit-learn pipeline with a {last.kind}",
        )

    def _transform(self, X: Any) -> Any:
        """Return the rows as the last step takes them."""
        transformed = self.model[:-1].transform(X)
        return transformed.toarray() if hasattr(transformed, "toarray") else transformed

    def encode(self, X: Any, sensitive_features: Any = None) -> Rows:
        """Return the rows as the last step encodes them."""
        return self.last.encode(self._transform(X), sensitive_features)

    def scores(self, X: Any, sensitive_features: Any = None, encoded: Rows | None = None) -> Rows:
        """Return the probabilities of the last step, or its scores if it has none."""
        return self.last.scores(self._transform(X), sensitive_features, encoded)

    def predict(
        self, X: Any, sensitive_features: Any = None, *, encoded: Rows, threshold: float | None = None
    ) -> Outputs:
        """Return scores and decisions of the last step; the steps before it are applied once."""
        return self.last.predict(self._transform(X), sensitive_features, encoded=encoded, threshold=threshold)


def _encoded_names(model: Pipeline, names: tuple[str, ...], origin: Origin) -> tuple[str, ...]:
    try:
        return tuple(map(str, model[:-1].get_feature_names_out()))
    except (AttributeError, ValueError):  # some step does not name its outputs
        return tuple(f"{names[j]} ({i})" for i, j in enumerate(origin.tolist()))
