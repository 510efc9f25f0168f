"""FairX itself is tested with the epochs that users get."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", autouse=True)
def _full_epochs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gcig.methods.fairx.training._MIN_EPOCH_ROWS", 8_000)
        yield
