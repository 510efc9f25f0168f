"""Small networks over sequences and images, with rows, labels and groups."""

import torch
from torch import Tensor, nn

Problem = tuple[nn.Module, Tensor, Tensor, Tensor]


class Transformer(nn.Module):
    """One encoder layer over token embeddings, and the mean of the tokens."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(width, 2, 8, activation="gelu", batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.encoder(x).mean(1))


def convolutional_network(channels: int = 2) -> nn.Module:
    """Return two convolutions with smooth activations and a pooled head."""
    return nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=1),
        nn.SiLU(),
        nn.Conv2d(4, 4, 3, padding=1, stride=2),
        nn.SiLU(),
        nn.Flatten(),
        nn.LazyLinear(1),
    )


def token_problem(n: int = 16, tokens: int = 5, dtype: torch.dtype = torch.float64) -> Problem:
    """Return a transformer with sequences of embeddings."""
    return _problem(Transformer, (n, tokens, 4), dtype)


def image_problem(n: int = 16, size: int = 6, dtype: torch.dtype = torch.float64) -> Problem:
    """Return a convolutional network with images of two channels."""
    return _problem(convolutional_network, (n, 2, size, size), dtype)


def _problem(make: type[nn.Module] | object, shape: tuple[int, ...], dtype: torch.dtype) -> Problem:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        module = make().double()  # type: ignore[operator]
        x = torch.randn(shape, dtype=torch.float64)
        module(x[:1])
        with torch.no_grad():  # larger than at initialisation, so that paths are well curved
            for parameter in module.parameters():
                parameter *= 1.5
    codes = torch.arange(len(x))
    return module.to(dtype), x.to(dtype), codes % 2, codes // 2 % 2
