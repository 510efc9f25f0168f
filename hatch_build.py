"""The README as the description of the package: its links lead to the repository, as they must on PyPI."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"(!?)(\[[^\]]*\])\((?!https?:|#)([^)]+)\)")


def link_to(readme: str, repository: str, version: str) -> str:
    """Return a README whose relative links and images are addresses in the repository, at a version."""

    def absolute(link: re.Match[str]) -> str:
        image, text, path = link.groups()
        return f"{image}{text}({repository}/{'raw' if image else 'blob'}/v{version}/{path})"

    return _RELATIVE.sub(absolute, readme)


class Description(MetadataHookInterface):
    """Sets the field ``readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Read the README and the version, and link the one to the other."""
        root = Path(self.root)
        version = re.search(r'__version__ = "([^"]+)"', (root / "src/gcig/_version.py").read_text("utf-8"))
        readme = (root / "README.md").read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": link_to(readme, metadata["urls"]["Repository"], version[1] if version else "0"),
        }
