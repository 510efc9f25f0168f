"""The code blocks of README and documentation pages, and a reader who follows them from top to bottom."""

import contextlib
import doctest
import io
import re
import shlex
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from gcig.cli import main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

_RST = re.compile(
    r"^(?P<indent> *)\.\. (?:code-block|code):: (?P<language>[\w-]+)\n"
    r"(?P<options>(?:(?P=indent)   :.*\n)*)\n(?P<code>(?:(?P=indent)   .*\n|[ ]*\n)+)",
    re.MULTILINE,
)
_FENCE = re.compile(r"^```(?P<language>[\w-]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?P<code>(?:    .*\n)+)")
_CAPTION = re.compile(r":caption: (.+)")

# What a page may show without its being run here, and where it is run instead.
ELSEWHERE = {
    "make": "targets of the Makefile: .ci/run calls them",
    "pip": "installing: the Makefile does it",
    "open": "the reader's browser",
}


@dataclass(frozen=True)
class Block:
    """A piece of code on a page; `line` is where it begins."""

    language: str
    code: str
    line: int
    caption: str = ""


def blocks_of(path: Path) -> list[Block]:
    """The code blocks of a page in their order."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        found = [(m.start(), m["language"] or "text", m["code"], "") for m in _FENCE.finditer(text)]
        fenced = [m.span() for m in _FENCE.finditer(text)]
        found += [
            (m.start(), "shell", m["code"], "")
            for m in _INDENTED.finditer(text)
            if not any(start <= m.start() < end for start, end in fenced)
        ]
    else:
        found = [
            (m.start(), m["language"], m["code"], "".join(_CAPTION.findall(m["options"])))
            for m in _RST.finditer(text)
        ]
    return [
        Block(language, textwrap.dedent(code).strip("\n") + "\n", text.count("\n", 0, place) + 1, caption)
        for place, language, code, caption in sorted(found)
    ]


def commands_of(block: Block) -> list[tuple[str, str]]:
    """(command, what is printed below it) of a block; lines of one command are joined."""
    if block.language == "console":
        parts = re.split(r"^\$ ", block.code.replace("\\\n", " "), flags=re.MULTILINE)[1:]
        return [(head.strip(), shown) for head, _, shown in (part.partition("\n") for part in parts)]
    if block.language == "yaml":  # the steps of a build
        return [(line.strip(), "") for line in block.code.splitlines() if line.strip().startswith("gcig ")]
    lines = (line.partition("  #")[0].strip() for line in block.code.splitlines())
    return [(line, "") for line in lines if line]


@dataclass
class Reader:
    """Somebody who does what a page says, in one folder and one Python session.

    `shorter` maps a command of `gcig` to options that are added to it, so that it does not take long.
    `compare` says whether what is printed below a command has to be what it prints (numbers aside).
    """

    folder: Path
    shorter: dict[str, list[str]] = field(default_factory=dict)
    compare: bool = True
    namespace: dict[str, object] = field(default_factory=lambda: {"__name__": "page"})
    code: int = 0
    ran: list[str] = field(default_factory=list)

    def follow(self, path: Path) -> None:
        """All blocks of a page."""
        for block in blocks_of(path):
            try:
                self.do(block)
            except BaseException as error:
                error.add_note(f"in the {block.language} block of {path.name}, line {block.line}")
                raise

    def do(self, block: Block) -> None:
        """One block: a file to write, Python to run, or commands."""
        if block.language in ("console", "shell", "bash", "sh", "yaml"):
            self._run_all(commands_of(block))
        if block.language == "python" and ">>> " in block.code:
            self._run_doctest(block)
        elif block.caption and re.fullmatch(r"[\w./-]+\.\w+", block.caption):
            target = self.folder / block.caption
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.code, "utf-8")
        elif block.language == "python":
            exec(compile(block.code, f"<line {block.line}>", "exec"), self.namespace)

    def _run_doctest(self, block: Block) -> None:
        test = doctest.DocTestParser().get_doctest(block.code, self.namespace, "page", None, block.line)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        said: list[str] = []
        runner.run(test, out=said.append, clear_globs=False)
        assert not runner.failures, "".join(said)
        self.namespace.update(test.globs)

    def _run_all(self, commands: list[tuple[str, str]]) -> None:
        for command, shown in commands:
            if command == "echo $?":
                assert self.code == int(shown), f"exit code {self.code} instead of {shown.strip()}"
                self.code = 0
                continue
            assert self.code == 0, f"exit code {self.code}, and the page does not say so"
            self._run(command, shown)
        assert self.code == 0, f"exit code {self.code}, and the page does not say so"

    def _run(self, command: str, shown: str) -> None:
        line, _, target = command.partition(" > ")
        program, *arguments = shlex.split(line)
        if program in ELSEWHERE:
            return
        assert program == "gcig", f"no way to run `{command}` here"
        arguments += self.shorter.get(arguments[0], []) if arguments else []
        both = io.StringIO()
        result = io.StringIO() if target else both
        with contextlib.redirect_stdout(result), contextlib.redirect_stderr(both):
            self.code = main(arguments)
        self.ran.append(arguments[0] if arguments else "")
        if target:
            (self.folder / target.strip()).write_text(result.getvalue(), "utf-8")
        printed = both.getvalue()
        assert self.code < 2 or shown, printed
        if self.compare and shown.strip():
            assert matches(shown, printed), f"`{command}` prints\n{printed}"


def matches(shown: str, printed: str) -> bool:
    """Whether a page shows what is printed: up to numbers and spaces, with ... for what is left out.

    >>> matches("AUC 0.81\\n...\\ndone", "AUC  0.79\\nand more\\ndone\\n")
    True
    """
    wanted, found = (re.sub(r"\d[\d.,]*", "#", " ".join(text.split())) for text in (shown, printed))
    parts = (re.escape(part) for part in re.split(r" ?\.\.\. ?", wanted))
    return re.search(".*".join(parts), found) is not None
