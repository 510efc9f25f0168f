"""Report pages as a browser sees them, read by a small HTML parser."""

from html.parser import HTMLParser

from gcig.report.tables import Entry

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """The elements, texts and raw parts of a page; unbalanced tags fail an assertion."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.tags, self.ids, self.texts, self.raw = [], [], [], {}
        self._open = []
        self.feed(html)
        self.close()
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if "id" in dict(attrs):
            self.ids.append(dict(attrs)["id"])
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open, f"closes nothing: {tag}"
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] in ("script", "style"):
            self.raw[self._open[-1]] = self.raw.get(self._open[-1], "") + data
        elif data.strip():
            self.texts.append(" ".join(data.split()))

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def text(self):
        return " ".join(self.texts)


def marks_of(table):
    """The marks of a table's entries, by row and column."""
    return {
        (i, j): value.mark
        for i, row in enumerate(table.rows)
        for j, value in enumerate(row)
        if isinstance(value, Entry) and value.mark
    }
