"""Adult as tensors, and networks for it."""

import functools

import torch

import gcig
from gcig.core.references import GroupBaselines, Rows
from gcig.models.mlp import MLP, make_mlp
from gcig.tables.encoding import TableEncoder

BATCH_SIZE = 512


@functools.cache
def load() -> Rows:
    """Load all rows in random order, with sex as the protected attribute and among the inputs."""
    dataset = gcig.load_dataset("adult")
    inputs = torch.from_numpy(TableEncoder().fit_transform(dataset.X))
    labels = torch.from_numpy(dataset.y.to_numpy("int64", copy=True))
    groups = torch.from_numpy(dataset.sensitive_features.astype("category").cat.codes.to_numpy("int64"))
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    return Rows(inputs, labels, groups)[order]


def baselines(data: Rows) -> GroupBaselines:
    return GroupBaselines.from_data(data.inputs, data.labels, data.groups)


def network(activation: str, hidden: tuple[int, ...] = (64, 32)) -> MLP:
    generator = torch.Generator().manual_seed(0)
    return make_mlp(load().inputs.shape[1], hidden, activation, generator=generator)
