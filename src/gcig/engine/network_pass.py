"""Logits and attributions of a layered network, and the pullback of their gradients, without a graph.

The forward pass equals `gcig.core.modules.logits` and `gcig.core.paths.cell_secant_attributions`; the
backward pass equals autograd through both. The rows' forward pass is shared by the two.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, linear

from gcig.core.layered import LayeredNetwork
from gcig.engine.cuda_graph import in_parallel
from gcig.engine.scratch import Scratch
from gcig.engine.secant_pass import Gradient, Layers, SecantPass, SecantRule


class NetworkPass:
    """One forward and one backward pass per mini-batch, with arrays that are kept between mini-batches.

    `network` is a layered network whose parameters have gradients to write to, see `applies`; `n_segments` is
    the number of segments per path.
    """

    def __init__(self, network: nn.Module, n_segments: int = 1) -> None:
        layered = LayeredNetwork.recognise(network)
        assert layered is not None
        self.layers, self.rule = Layers.of(layered), SecantRule(n_segments)
        self.d_weights = [weight.grad for weight in layered.weights if weight.grad is not None]
        self.d_biases = [None if bias is None else bias.grad for bias in layered.biases]
        self._scratch = Scratch()
        self._work: SecantPass | _PlainPass | None = None

    @staticmethod
    def applies(network: nn.Module, inputs: Tensor, *, explains: bool) -> bool:
        """Return whether the passes equal autograd's: layered, without dropout, hooks or tied layers."""
        layered = LayeredNetwork.recognise(network) if inputs.dim() == 2 else None
        if layered is None or _has_side_effects(network) or (explains and layered.n_hidden == 0):
            return False
        gradients = [each.grad for each in (*layered.weights, *layered.biases) if each is not None]
        places = [gradient.data_ptr() for gradient in gradients if gradient is not None]
        # Frozen parameters have no gradient, tied ones share it.
        return len(places) == len(set(places)) == len(list(network.parameters()))

    @torch.no_grad()
    def predict(self, inputs: Tensor) -> Tensor:
        """Return the logits of the rows."""
        self._work = work = _PlainPass(self.layers, inputs)
        return work.logits

    @torch.no_grad()
    def train_on_cross_entropy(self, inputs: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Return `gcig.losses.terms.PredictionTerm` of the rows, and write the parameters' gradient."""
        scores = self.predict(inputs)
        d_scores = torch.sigmoid(scores).sub_(targets).div_(len(scores))
        self.pull(d_scores if weights is None else d_scores.mul_(weights))
        return binary_cross_entropy_with_logits(scores, targets, weight=weights)

    @torch.no_grad()
    def explain(self, inputs: Tensor, labels: Tensor, references: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of all rows, and the attributions (references, n, columns) of the first ones.

        Parameters
        ----------
        inputs : Tensor of shape (rows, columns)
        labels : Tensor of shape (n,)
            Which references each of the first rows is compared with.
        references : Tensor of shape (labels, references, columns)
        """
        n_plain = len(inputs) - len(labels)
        work = SecantPass(self.layers, len(labels), n_plain, references, self.rule, self._scratch)
        self._work = work
        in_parallel([partial(work.inputs.copy_, inputs), partial(work.load, labels, references)])
        work.propagate()
        logits, attributions = in_parallel([work.logits, work.attribute])
        return logits, attributions

    @torch.no_grad()
    def pull(self, d_logits: Tensor, d_attributions: Tensor | None = None) -> None:
        """Write the parameters' gradient, given those of the last pass's logits and attributions."""
        work = self._work
        if isinstance(work, SecantPass):
            assert d_attributions is not None
            gradient = work.pull_attributions(d_attributions, d_logits)
        else:
            assert work is not None
            gradient = work.pull(d_logits)
        gradient.copy_to(self.d_weights, self.d_biases)


class _PlainPass:
    """The forward pass of rows that are predicted but not explained, and its pullback."""

    def __init__(self, layers: Layers, inputs: Tensor) -> None:
        self.layers, self.values, self.nodes = layers, [inputs], []
        for weight, bias, activation in zip(layers.weights, layers.biases, layers.activations, strict=False):
            self.nodes.append(linear(self.values[-1], weight, bias))
            self.values.append(activation.value(self.nodes[-1]))
        logits, bias = torch.mv(self.values[-1], layers.top), layers.biases[-1]
        self.logits = logits if bias is None else logits.add_(bias)

    def pull(self, d_logits: Tensor) -> Gradient:
        values, nodes, layers = self.values, self.nodes, self.layers
        d_weights = [torch.mv(values[-1].T, d_logits).unsqueeze(0)]
        d_biases = [d_logits.sum().unsqueeze(0)]
        d_values = torch.outer(d_logits, layers.top)
        for index in range(len(nodes) - 1, -1, -1):
            d_nodes = layers.activations[index].pull(d_values, nodes[index], values[index + 1])
            d_weights.insert(0, torch.mm(d_nodes.T, values[index]))
            d_biases.insert(0, d_nodes.sum(0))
            if index:
                d_values = torch.mm(d_nodes, layers.weights[index])
        return Gradient(d_weights, d_biases)


def _has_side_effects(network: nn.Module) -> bool:
    """Return whether a forward or backward pass does more than arithmetic: dropout, or hooks on gradients."""
    return any(
        isinstance(part, nn.Dropout) or part._backward_hooks or part._backward_pre_hooks
        for part in network.modules()
    ) or any(parameter._backward_hooks for parameter in network.parameters())
