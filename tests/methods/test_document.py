import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from gcig._validation import InputError
from gcig.methods.document import (
    architecture_of,
    history_from_plain,
    history_to_plain,
    numbers_from_plain,
    numbers_to_plain,
    parameters_from_plain,
    parameters_to_plain,
    restore_network,
    to_plain,
)
from gcig.models.mlp import MLP, make_mlp


def through_json(value):
    return json.loads(json.dumps(value, allow_nan=False, sort_keys=True))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.array([1, 2]), [1, 2]),
        (np.array(["a", "b"], dtype=object), ["a", "b"]),
        ((np.float32(0.5), (np.bool_(True),)), [0.5, [True]]),
        ({"a": np.int8(3)}, {"a": 3}),
        (None, None),
    ],
)
def test_plain_values(value, expected):
    assert through_json(to_plain(value)) == expected


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("hidden_sizes", (64, 32)),
        ("hidden_sizes", ()),
        ("class_weight", {0: 1.0, 1: 5.0}),
        ("class_weight", {"no": 1, "yes": 2}),
        ("class_weight", {False: 1.0, True: 3.0}),
        ("class_weight", {"inf": 1.0, "1": 3.0}),
        ("class_weight", "balanced"),
        ("class_weight", None),
        ("threshold", "f1"),
        ("max_auc_drop", math.inf),
        ("random_state", 7),
        ("random_state", None),
    ],
)
def test_parameters_come_back_as_they_were(parameter, value):
    stored = through_json(parameters_to_plain({parameter: value, "random_state": 7} | {parameter: value}))
    found = parameters_from_plain(stored)[parameter]
    assert found == value
    assert type(found) is type(value)


def test_numpy_parameters_come_back_as_pythons_own():
    given = {"random_state": np.int64(3), "lambda_ig": np.float32(0.5), "class_weight": {np.int64(1): 2}}
    found = parameters_from_plain(through_json(parameters_to_plain(given)))
    assert found == {"random_state": 3, "lambda_ig": 0.5, "class_weight": {1: 2}}


def test_what_has_no_place_in_a_file_is_left_out():
    given = {
        "module": nn.Linear(1, 1),
        "random_state": np.random.RandomState(0),
        "device": torch.device("cpu"),
    }
    assert through_json(parameters_to_plain(given)) == {"random_state": None, "device": "cpu"}


def test_numbers_that_json_lacks_become_missing():
    stored = through_json(numbers_to_plain({"auc": 0.7, "gcig": math.nan, "columns": math.inf}))
    assert stored == {"auc": 0.7, "gcig": None, "columns": None}
    found = numbers_from_plain(stored)
    assert found["auc"] == 0.7
    assert math.isnan(found["gcig"])


def test_a_history_keeps_its_columns_in_order_and_its_gaps():
    history = pd.DataFrame({"epoch": [1, 2], "total": [0.1 + 0.2, 2.0], "gcig": [math.nan, 0.25]})
    found = history_from_plain(through_json(history_to_plain(history)))
    pd.testing.assert_frame_equal(found, history, check_exact=True)


def test_networks_of_this_package_are_made_anew():
    network = make_mlp(3, (4,), "gelu", dropout=0.1)
    architecture = through_json(architecture_of(network))
    twin = restore_network(architecture, network.state_dict(), None)
    assert not twin.training
    x = torch.randn(5, 3)
    assert torch.equal(twin(x), network.eval()(x))


class Doubled(MLP):
    def forward(self, rows):
        return 2 * super().forward(rows)


@pytest.mark.parametrize("network", [Doubled(3, (4,)), nn.Linear(3, 1)], ids=["subclass", "other"])
def test_networks_whose_code_is_not_ours_have_no_architecture(network):
    assert architecture_of(network) is None


def test_a_network_of_ones_own_is_copied_and_gets_the_stored_weights():
    stored, given = nn.Linear(3, 1), nn.Linear(3, 1)
    before = given.weight.detach().clone()
    found = restore_network(None, stored.state_dict(), given)
    assert torch.equal(found.weight, stored.weight)
    assert torch.equal(given.weight, before)


def test_a_missing_or_unlike_network_is_refused():
    state = nn.Linear(3, 1).state_dict()
    with pytest.raises(InputError, match=r"module is missing.*gcig\.load\(path, module="):
        restore_network(None, state, None)
    with pytest.raises(InputError, match="module does not have the architecture of the stored network"):
        restore_network(None, state, nn.Linear(4, 1))
