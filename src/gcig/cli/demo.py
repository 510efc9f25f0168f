"""`gcig demo`: the main job on shipped data."""

from __future__ import annotations

from typing import Any

import click

from gcig.cli.frame import Command
from gcig.cli.layout import format_table

__all__ = ["demo"]


@click.command(cls=Command, example="gcig demo")
@click.option(
    "--dataset", default="german", show_default=True, help="One of those that `gcig datasets` lists."
)
@click.option("--sensitive", default=None, help="Protected attribute; the dataset's default if not given.")
@click.option("--seed", default=0, show_default=True, help="Seed of the split and of training.")
@click.option("--epochs", default=40, show_default=True, help="Epochs at most.")
def demo(dataset: str, sensitive: str | None, seed: int, epochs: int) -> None:
    """Train FairX beside the plain network on a shipped dataset, and compare them on unseen rows."""
    from gcig.data.card import format_groups
    from gcig.data.encoding import TableEncoder
    from gcig.data.registry import load_dataset
    from gcig.data.splitting import train_validation_test

    data = load_dataset(dataset, sensitive)
    spec, attribute = data.card.spec, sensitive or data.card.spec.default
    click.echo(
        f"{spec.title}: {len(data.X):,} rows, {data.X.shape[1]} columns. "
        f"Label 1 means {spec.positive_means} ({data.card.base_rate:.1%})."
    )
    click.echo(f"Protected attribute {attribute}:")
    click.echo("\n".join(format_groups(data.card.groups[attribute])))

    split = train_validation_test(data.y, data.sensitive_features, random_state=seed)
    click.echo(
        f"Split, stratified by label and group: {len(split.train):,} rows to train, "
        f"{len(split.validation):,} to validate, {len(split.test):,} to test."
    )
    encoder = TableEncoder().fit(data.X.iloc[split.train])
    encoded = encoder.transform(data.X.iloc[split.test])
    click.echo(
        f"Encoded, fitted on the training rows only: {data.X.shape[1]} columns become "
        f"{len(encoder.encoded_names_)} {encoded.dtype} inputs."
    )
    rows = [
        _train_and_measure(key, data, split, seed=seed, epochs=epochs) for key in ("unconstrained", "fairx")
    ]
    click.echo(f"\nOn the {len(split.test):,} test rows:")
    click.echo(
        format_table(("", "AUC", "F1", "EO gap", "GCIG", "columns used"), rows, right_aligned=range(1, 6))
    )
    click.echo(
        "GCIG is how much the reasons for a decision depend on the group that someone is compared with; "
        "the EO gap is how much error rates do."
    )
    click.echo(f"`gcig datasets {dataset}` shows what to know before using these data.")


def _train_and_measure(key: str, data: Any, split: Any, *, seed: int, epochs: int) -> list[str]:
    """One line of the demo's table."""
    import gcig
    from gcig.methods import METHODS

    click.echo(f"Training {METHODS[key].label} ...", err=True)
    rows, groups = [*split.train, *split.validation], data.sensitive_features
    model = METHODS[key].estimator(random_state=seed, max_epochs=epochs)
    model.fit(data.X.iloc[rows], data.y.iloc[rows], sensitive_features=groups.iloc[rows])
    found = gcig.evaluate(
        model, data.X.iloc[split.test], data.y.iloc[split.test], sensitive_features=groups.iloc[split.test]
    )
    numbers = (found.auc, found.f1, found.eo_gap, found.gcig)
    return [METHODS[key].label, *(f"{number:.3f}" for number in numbers), f"{found.effective_columns:.1f}"]
