"""What a reproduction leaves behind, as JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

__all__ = ["plain_reproduction"]


def plain_reproduction(folder: Path, page: Path) -> dict[str, Any]:
    """What was asked for in a folder, which claims were met, and which folds failed."""
    from gcig.experiments.checks import asked_checks
    from gcig.experiments.collection import read

    found = read(folder)
    finished = {name: int(frame["error"].isna().sum()) for name, frame in found.frames.items()}
    failed = {name: int(frame["error"].notna().sum()) for name, frame in found.frames.items()}
    return {
        "schema": 1,
        "kind": "reproduction",
        "request": asdict(found.request),
        "finished": finished,
        "failed": failed,
        "checks": [asdict(check) for check in asked_checks(found)],
        "page": str(page),
    }
