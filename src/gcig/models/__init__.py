"""Network architectures that methods train."""

from gcig.models.mlp import ACTIVATIONS, MLP, make_mlp, mlp_from_architecture

__all__ = ["ACTIVATIONS", "MLP", "make_mlp", "mlp_from_architecture"]
