"""Code blocks of the README and the documentation pages, and a reader that runs them from top to bottom."""

import contextlib
import doctest
import io
import re
import shlex
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from gcig.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_RST = re.compile(
    r"^(?P<indent> *)\.\. (?:code-block|code):: (?P<language>[\w-]+)\n"
    r"(?P<options>(?:(?P=indent)   :.*\n)*)\n(?P<code>(?:(?P=indent)   .*\n|[ ]*\n)+)",
    re.MULTILINE,
)
_FENCE = re.compile(r"^```(?P<language>[\w-]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?P<code>(?:    .*\n)+)")
_CAPTION = re.compile(r":caption: (.+)")

# Programs that a page may show although they are not run here, and the reason.
ELSEWHERE = {
    "make": "targets of the Makefile, which CI runs",
    "pip": "installation, which the Makefile runs",
    "open": "the reader's browser",
}


@dataclass(frozen=True)
class Block:
    """Code block on a page; `line` is its first line."""

    language: str
    code: str
    line: int
    caption: str = ""


def blocks_of(path: Path) -> list[Block]:
    """Return the code blocks of a page in order."""
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
    """Return pairs of (command, expected output) of a block; continued lines are joined."""
    if block.language == "console":
        parts = re.split(r"^\$ ", block.code.replace("\\\n", " "), flags=re.MULTILINE)[1:]
        return [(head.strip(), shown) for head, _, shown in (part.partition("\n") for part in parts)]
    if block.language == "yaml":  # the steps of a build
        return [(line.strip(), "") for line in block.code.splitlines() if line.strip().startswith("gcig ")]
    lines = (line.partition("  #")[0].strip() for line in block.code.splitlines())
    return [(line, "") for line in lines if line]


@dataclass
class Reader:
    """Reader that follows a page in one folder and one Python session.

    `shorter` maps a subcommand of `gcig` to options that shorten it. If `compare` is true, the output of a
    command must match the output shown on the page, apart from numbers.
    """

    folder: Path
    shorter: dict[str, list[str]] = field(default_factory=dict)
    compare: bool = True
    namespace: dict[str, object] = field(default_factory=lambda: {"__name__": "page"})
    code: int = 0
    ran: list[str] = field(default_factory=list)
    background: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def follow(self, path: Path) -> list[int]:
        """Run all blocks of a page, and return the lines of those that ran."""
        done = []
        try:
            for block in blocks_of(path):
                try:
                    self.run_block(block)
                except BaseException as error:
                    error.add_note(f"in the {block.language} block of {path.name}, line {block.line}")
                    raise
                done.append(block.line)
        finally:
            while self.background:  # the last one first: workers before their scheduler
                process = self.background.pop()
                process.terminate()
                process.wait(timeout=60)
        return done

    def run_block(self, block: Block) -> None:
        """Run one block: write a file, run Python, or run commands."""
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
        output: list[str] = []
        runner.run(test, out=output.append, clear_globs=False)
        assert not runner.failures, "".join(output)
        self.namespace.update(test.globs)

    def _run_all(self, commands: list[tuple[str, str]]) -> None:
        for command, shown in commands:
            if command == "echo $?":
                assert self.code == int(shown), f"exit code {self.code} instead of {shown.strip()}"
                self.code = 0
                continue
            assert self.code == 0, f"exit code {self.code}, which the page does not show"
            self._run(command, shown)
        assert self.code == 0, f"exit code {self.code}, which the page does not show"

    def _run(self, command: str, shown: str) -> None:
        line, _, target = command.partition(" > ")
        program, *arguments = shlex.split(line)
        if program in ELSEWHERE:
            return
        if program == "dask" and arguments[-1] == "&":
            words = [sys.executable, "-m", "dask", *arguments[:-1]]
            self.background.append(subprocess.Popen(words, stderr=subprocess.DEVNULL))
            return
        assert program == "gcig", f"cannot run `{command}` here"
        shorter = self.shorter.get(arguments[0], []) if arguments else []
        for option in set(shorter[::2]) & set(arguments):  # replace the value on the page
            place = arguments.index(option)
            del arguments[place : place + 2]
        arguments += shorter
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
    """Return whether the output shown on a page matches what is printed.

    Numbers and spaces may differ, and ``...`` stands for any text.


    >>> matches("AUC 0.81\\n...\\ndone", "AUC  0.79\\nand more\\ndone\\n")
    True
    """
    wanted, found = (re.sub(r"\d[\d.,]*", "#", " ".join(text.split())) for text in (shown, printed))
    parts = (re.escape(part) for part in re.split(r" ?\.\.\. ?", wanted))
    return re.search(".*".join(parts), found) is not None
