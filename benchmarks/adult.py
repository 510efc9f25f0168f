"""Adult as tensors, and networks trained on it."""

import functools
import itertools
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import gcig
from gcig.core.batch import GroupedBatch
from gcig.core.references import GroupBaselines
from gcig.data.encoding import TableEncoder
from gcig.losses.gcig import GCIGPenalty
from gcig.models.mlp import MLP, make_mlp

BATCH_SIZE = 512
WEIGHT = 0.2  # lambda_ig of the training steps


@functools.cache
def load() -> GroupedBatch:
    """Load all rows in random order, with sex as the protected attribute and among the inputs."""
    dataset = gcig.load_dataset("adult")
    inputs = torch.from_numpy(TableEncoder().fit_transform(dataset.X))
    labels = torch.from_numpy(dataset.y.to_numpy("int64", copy=True))
    groups = torch.from_numpy(dataset.sensitive_features.astype("category").cat.codes.to_numpy("int64"))
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
    return GroupedBatch(inputs, labels, groups)[order]


def baselines(data: GroupedBatch) -> GroupBaselines:
    return GroupBaselines.from_data(data.inputs, data.labels, data.groups)


def network(activation: str, hidden: tuple[int, ...]) -> MLP:
    n_inputs = load().inputs.shape[1]
    return make_mlp(n_inputs, hidden, activation, generator=torch.Generator().manual_seed(0))


def batches(data: GroupedBatch, count: int = 32) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield inputs, labels and targets of some mini-batches in an endless cycle."""
    parts = [data[start : start + BATCH_SIZE] for start in range(0, count * BATCH_SIZE, BATCH_SIZE)]
    return itertools.cycle([(part.inputs, part.labels, part.labels.float()) for part in parts])


@functools.cache
def trained(activation: str, hidden: tuple[int, ...], weight: float, epochs: int = 5) -> MLP:
    """Train a network for some epochs, with the penalty if `weight` is not 0."""
    data, module = load(), network(activation, hidden)
    penalty = GCIGPenalty(baselines(data))
    optimizer = torch.optim.Adam(module.parameters(), lr=3e-3, fused=True)
    loss = nn.BCEWithLogitsLoss()
    generator = torch.Generator().manual_seed(1)
    for _ in range(epochs):
        for rows in torch.randperm(len(data), generator=generator).split(BATCH_SIZE):
            inputs, labels = data.inputs[rows], data.labels[rows]
            total = loss(module(inputs), labels.float())
            if weight:
                total = total + weight * penalty(module, inputs, labels, data.groups[rows])
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
    return module
