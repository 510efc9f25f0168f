"""The how-to page on measuring in parts runs as printed."""

import pytest

from support.documented_blocks import DOCS, blocks_of


def run_page() -> dict:
    names: dict = {}
    for block in blocks_of(DOCS / "howto" / "parts.rst"):
        if block.language == "python":
            exec(compile(block.code, "parts.rst", "exec"), names)
    return names


@pytest.mark.filterwarnings("ignore")
def test_dask_partitions_add_up() -> None:
    names = run_page()
    assert names["found"].n_rows == 6_000
    assert names["found"].reason_gap == pytest.approx(names["whole"].reason_gap)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_batches_add_up() -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, ignore_reinit_error=True)
    try:
        names = run_page()
        found = names["on_ray"](names["people"])
        assert found.n_rows == 6_000
        assert found.reason_gap == pytest.approx(names["whole"].reason_gap)
    finally:
        ray.shutdown()
