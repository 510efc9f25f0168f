"""Attributions against Captum's IntegratedGradients, in double precision."""

import pytest
import torch
from torch import nn

from gcig.core.attribution import attributions
from gcig.models.mlp import ACTIVATIONS, make_mlp

IntegratedGradients = pytest.importorskip("captum.attr").IntegratedGradients
# Captum's names of the rules that both have.
RULES = {"right": "riemann_right", "midpoint": "riemann_middle", "gauss_legendre": "gausslegendre"}
# Captum's nodes and weights are single precision numbers, whatever the inputs are.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
ACTIVATION = pytest.mark.parametrize("activation", list(ACTIVATIONS))
DEPTHS = [(), (8,), (8, 6), (6, 5, 4)]
DEPTH = pytest.mark.parametrize("hidden", DEPTHS, ids=len)


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.SiLU(), nn.BatchNorm2d(4), nn.AvgPool2d(2), nn.Flatten(), nn.Dropout(0.3)
        )
        self.head = nn.Linear(4 * 3 * 3, 1)

    def forward(self, x):
        return self.head(self.features(x))[:, 0]


class Attentive(nn.Module):
    """Rows are (sequence, embedding)."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 1)

    def forward(self, x):
        mixed = self.attention(x, x, x, need_weights=False)[0]
        return self.head(self.norm(x + mixed).mean(1))[:, 0]


def make_rows(shape, groups=2, n=9, seed=0):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(n, *shape, generator=generator, dtype=torch.float64)
    return inputs, torch.randn(groups, n, *shape, generator=generator, dtype=torch.float64)


def captum(module, inputs, references, method, n_steps):
    explainer = IntegratedGradients(module.eval())
    results = [
        explainer.attribute(inputs, start, method=method, n_steps=n_steps, return_convergence_delta=True)
        for start in references
    ]
    values, residuals = zip(*results, strict=True)
    return torch.stack(values), torch.stack(residuals).abs()


@ACTIVATION
@DEPTH
@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.parametrize("fast", [True, False])
def test_networks_of_any_activation_and_depth(activation, hidden, rule, fast):
    module = make_mlp(5, hidden, activation, generator=torch.Generator().manual_seed(1)).double()
    inputs, references = make_rows((5,), groups=3)
    found = attributions(module, inputs, references, rule=rule, n_steps=6, fast=fast)
    values, residual = captum(module, inputs, references, RULES[rule], 6)
    torch.testing.assert_close(found.values, values, **CLOSE)
    torch.testing.assert_close(found.residual, residual, **CLOSE)


@pytest.mark.parametrize(
    ("activation", "hidden"),
    [
        # The fast tests cover every activation and, for a smooth and a kinked one, every depth.
        pytest.param(activation, hidden, marks=[] if covering else pytest.mark.slow)
        for activation in ACTIVATIONS
        for hidden in DEPTHS
        for covering in [hidden == (8, 6) or activation in {"silu", "relu"}]
    ],
)
def test_the_automatic_mode_agrees_with_many_steps(activation, hidden):
    module = make_mlp(5, hidden, activation, generator=torch.Generator().manual_seed(1)).double()
    inputs, references = make_rows((5,))
    found = attributions(module, inputs, references)
    values, _ = captum(module, inputs, references, "riemann_middle", 3000)
    error = (found.values - values).abs().sum(-1) / values.abs().sum(-1)
    assert error.mean() < (5e-4 if activation in {"relu", "leaky_relu"} else 1e-4)


@pytest.mark.parametrize(
    ("make_module", "shape"), [(Convolutional, (2, 8, 8)), (Attentive, (6, 4))], ids=["image", "sequence"]
)
@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.parametrize("max_bytes", [1 << 28, 50_000])
def test_images_and_sequences(make_module, shape, rule, max_bytes):
    torch.manual_seed(0)
    module = make_module().double()
    inputs, references = make_rows(shape)
    found = attributions(module.train(), inputs, references, rule=rule, n_steps=5, max_bytes=max_bytes)
    values, residual = captum(module, inputs, references, RULES[rule], 5)
    assert found.values.shape == (2, 9, *shape)
    torch.testing.assert_close(found.values, values, **CLOSE)
    torch.testing.assert_close(found.residual, residual, **CLOSE)


def test_one_of_several_outputs():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    inputs, references = make_rows((5,))
    found = attributions(
        module, inputs, references, rule="gauss_legendre", n_steps=5, score=lambda out: out[:, 2]
    )
    explainer = IntegratedGradients(module)
    for group in range(2):
        expected = explainer.attribute(inputs, references[group], target=2, n_steps=5)
        torch.testing.assert_close(found.values[group], expected, **CLOSE)
