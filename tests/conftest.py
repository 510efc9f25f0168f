"""Settings for all tests."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

# No deadline: machines are shared, and the first call pays for what torch loads lazily.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

_SHORT, _FULL = 2_000, 8_000  # rows per epoch of a FairX student on a small table


@pytest.fixture(scope="session", autouse=True)
def _short_epochs() -> Iterator[None]:
    """Train FairX on small tables with epochs of 2,000 rows instead of 8,000, in a quarter of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gcig.methods.fairx.training._MIN_EPOCH_ROWS", _SHORT)
        yield


@pytest.fixture(autouse=True)
def _full_epochs_if_slow(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Train as users do in slow tests."""
    if request.node.get_closest_marker("slow"):
        monkeypatch.setattr("gcig.methods.fairx.training._MIN_EPOCH_ROWS", _FULL)
