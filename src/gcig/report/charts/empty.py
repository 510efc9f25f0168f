"""The picture of nothing."""

from markupsafe import Markup

from gcig.report.charts.svg import WIDTH, chart, text

__all__ = ["nothing"]


def nothing(title: str) -> Markup:
    """A chart that says that there is nothing to draw."""
    words = "There is nothing to show here."
    shown = text(words, WIDTH / 2, 24, anchor="middle", class_="label")
    return chart(48, shown, title=title, description=words, class_="chart empty")
