"""Pictures of the gallery: ``python docs/gallery_pictures.py`` runs the examples and writes them.

They have a white background, which keeps them readable on dark pages.
"""

import runpy
from pathlib import Path

import matplotlib

EXAMPLES = Path(__file__).parents[1] / "examples"
OUT = Path(__file__).parent / "_static" / "gallery"


def main() -> None:
    """Run every example and save its figure in ``docs/_static/gallery``."""
    matplotlib.use("agg")
    # Text stays text; without dates and random identifiers, equal figures give equal files.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gcig", "figure.facecolor": "white"})
    OUT.mkdir(parents=True, exist_ok=True)
    for path in sorted(EXAMPLES.glob("plot_*.py")):
        print(f"--- {path.stem}")
        figure = runpy.run_path(str(path), run_name="__main__")["figure"]
        figure.savefig(OUT / f"{path.stem.removeprefix('plot_')}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
