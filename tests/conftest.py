"""Settings for all tests."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

# No deadline: machines are shared, and the first call pays for what torch loads lazily.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

_EPOCH_ROWS = "gcig.methods.fairx.training._MIN_EPOCH_ROWS"


@pytest.fixture(scope="module")
def short_epochs() -> Iterator[None]:
    """Train FairX on small tables with 2,000 rows per epoch instead of 8,000, in a quarter of the time.

    For modules that test what is done with a model, not what FairX learns.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_EPOCH_ROWS, 2_000)
        yield


@pytest.fixture(autouse=True)
def _full_epochs_if_slow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train as users do in slow tests."""
    if request.node.get_closest_marker("slow"):
        monkeypatch.setattr(_EPOCH_ROWS, 8_000)
