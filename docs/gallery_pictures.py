"""Run the examples and keep their pictures in ``docs/_static/gallery``: ``python docs/gallery_pictures.py``.

The pictures carry a white ground of their own, so that they can be read on a dark page as well.
"""

import runpy
from pathlib import Path

import matplotlib

EXAMPLES = Path(__file__).parents[1] / "examples"
OUT = Path(__file__).parent / "_static" / "gallery"


def main() -> None:
    """Draw every example."""
    matplotlib.use("agg")
    # Text as text, and no dates or random identifiers: the same figures are the same files.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "gcig", "figure.facecolor": "white"})
    OUT.mkdir(parents=True, exist_ok=True)
    for path in sorted(EXAMPLES.glob("plot_*.py")):
        print(f"--- {path.stem}")
        figure = runpy.run_path(str(path), run_name="__main__")["figure"]
        figure.savefig(OUT / f"{path.stem.removeprefix('plot_')}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
