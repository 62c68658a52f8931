"""What the tests of the documents share: pages, their fences, and the command lines shown in them."""
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def pages(root):
    """README and its like, and docs/*.md. Measured pages, docs/results/, keep the words they were written with."""
    return [p for p in (root / n for n in ("README.md", "CONTRIBUTING.md")) if p.exists()] + sorted(
        (root / "docs").glob("*.md")
    )


@dataclass
class Fence:
    page: Path
    line: int  # of its first line of content
    language: str
    lines: list


@dataclass
class ShownCommand:
    page: str
    line: int
    text: str  # without the prompt and the comment behind it


def fences(page):
    found, current = [], None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            if current is None:
                current = Fence(page, number + 1, line.strip()[3:], [])
                found.append(current)
            else:
                current = None
        elif current is not None:
            current.lines.append(line)
    return found


def prose(page):
    """(line number, text) of all that is outside fences."""
    inside = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            inside = not inside
        elif not inside:
            yield number, line


COMMAND = re.compile(r"(?:make|build(?:-\w+)?/\S+|kiln(?= [a-z-])|cmake|cc|pip|python3|export|tests/\S+|tools/\S+)(?= |$).*")


def without_remark(text):
    """The command alone: a comment begins with ' # ', or follows two blanks."""
    for match in re.finditer(r"\s+# |\s{2,}", text):
        if text[: match.start()].count("'") % 2 == 0:
            return text[: match.start()].rstrip()
    return text.rstrip()


def commands(page, root):
    """Command lines of the page's fences: what follows a '$ '; in a fence without one, what begins with a program."""
    found = []
    for fence in fences(page):
        if fence.language not in ("", "console", "bash", "sh"):
            continue
        prompted = any(line.startswith("$ ") for line in fence.lines)
        for offset, line in enumerate(fence.lines):
            text = line[2:] if line.startswith("$ ") else line if not prompted and COMMAND.match(line) else None
            if text is not None:
                found.append(ShownCommand(str(page.relative_to(root)), fence.line + offset, without_remark(text)))
    return found


def simple_commands(text):
    """The words of each simple command of a line with &&, |, ; and redirections."""
    words, found = [], []
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|<>")
    lexer.whitespace_split = True
    for word in lexer:
        if set(word) <= set(";&|"):
            found.append(words)
            words = []
        else:
            words.append(word)
    return [w for w in found + [words] if w]


@dataclass
class Reasons:
    """tests/docs/commands.txt: which commands are not run, and why; what a page's commands need first."""

    patterns: list  # (reason, regular expression, as written)
    setups: dict  # page: command lines
    foreign: set  # options of other programs
    files: set  # files that are not of this tree

    @staticmethod
    def read(path):
        patterns, setups, foreign, files = [], {}, set(), set()
        for line in path.read_text().splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            kind, _, rest = line.partition(" | ")
            kind, rest = kind.strip(), rest.strip()
            if kind.startswith("first in "):
                setups.setdefault(kind.removeprefix("first in "), []).append(rest)
            elif kind == "options of others":
                foreign.update(rest.split())
            elif kind == "files of others":
                files.update(rest.split())
            else:
                glob = ".*".join(re.escape(part) for part in rest.split("*"))
                patterns.append((kind, re.compile(glob + r"\Z"), rest))
        return Reasons(patterns, setups, foreign, files)

    def why_not(self, command):
        return next((reason for reason, pattern, _ in self.patterns if pattern.match(command)), None)
