#!/usr/bin/env python3
"""usage: docs_code.py [--check] [PAGE...]     (default: README.md and docs/*.md)

Code that a page shows is copied from the sources. Before its fence is its source:

    <!-- code: src/train/step.cpp | ctx_.tape().reset(); ... ctx_.tape().backward( | const auto x -->

Each piece behind a bar names the text its first line contains and, after " ... ", that of its last line; without a
last line a piece is one statement; "^}" is a line that begins with the brace. Pieces that do not follow one another directly are joined by "...". A piece is
searched for after the one before. A file and no pieces is the whole file. Code that is in no source says why:

    <!-- code: none, what a user would write -->

Without --check the blocks are rewritten from the sources. With it, what differs is shown, and the status is 1."""
import difflib
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARK = re.compile(r"^<!-- code: (.+?) -->$")
FENCE = re.compile(r"^```(\w+)$")
LANGUAGES = {"c", "cpp", "cuda", "python", "cmake"}


class DocsError(Exception):
    pass


def ends_statement(line):
    code = re.sub(r"\s*//.*$", "", line).rstrip()
    return code.endswith((";", "{", "}", "},", ":", ">")) or not code


def has(line, text):
    """^ is the line's very beginning."""
    return line.startswith(text[1:]) if text.startswith("^") else text in line


def piece(lines, begin, first, last):
    """The lines [from, to) of one piece, looked for from line `begin` on."""
    at = next((i for i in range(begin, len(lines)) if has(lines[i], first)), None)
    if at is None:
        raise DocsError(f"no line has '{first}'" + (" behind the piece before" if begin else ""))
    if last is None:
        end = next(i for i in range(at, len(lines)) if ends_statement(lines[i]) or i + 1 == len(lines))
    else:
        end = next((i for i in range(at, len(lines)) if has(lines[i], last)), None)
        if end is None:
            raise DocsError(f"no line behind '{first}' has '{last}'")
    return at, end + 1


def source_code(where, root=ROOT):
    """What a mark names, in the form of the page."""
    name, *pieces = where.split(" | ")
    path = root / name.strip()
    if not path.is_file():
        raise DocsError(f"there is no {name.strip()}")
    lines = path.read_text().splitlines()
    if not pieces:
        return lines
    shown, end = [], 0
    for text in pieces:
        first, _, last = text.partition(" ... ")
        begin, stop = piece(lines, end, first.strip(), last.strip() or None)
        if shown and begin > end:
            shown.append("...")
        shown += textwrap.dedent("\n".join(lines[begin:stop])).split("\n")
        end = stop
    return shown


def rewritten(page, root=ROOT):
    """The page's lines with its code as it is now, and what is wrong with its marks."""
    lines, out, problems = page.read_text().splitlines(), [], []
    i = 0
    while i < len(lines):
        fence = FENCE.match(lines[i])
        if not fence:
            out.append(lines[i])
            i += 1
            continue
        end = next((j for j in range(i + 1, len(lines)) if lines[j].startswith("```")), len(lines))
        block = lines[i + 1 : end]
        mark = MARK.match(lines[i - 1]) if i else None
        if mark and not mark.group(1).startswith("none, "):
            try:
                block = source_code(mark.group(1), root)
            except DocsError as error:
                problems.append(f"{page.relative_to(root)}:{i}: {mark.group(1).split(' | ')[0]}: {error}")
        elif not mark and fence.group(1) in LANGUAGES:
            problems.append(f"{page.relative_to(root)}:{i + 1}: code without a mark of where it comes from")
        out += [lines[i], *block, "```"]
        i = end + 1
    return lines, out, problems


def check(pages, root=ROOT, write=False):
    """What is wrong, a string each; `write`: code that differs is put right."""
    problems = []
    for page in pages:
        before, after, wrong = rewritten(page, root)
        problems += wrong
        if before == after:
            continue
        if write:
            page.write_text("\n".join(after) + "\n")
            continue
        name = str(page.relative_to(root))
        problems.append("\n".join(difflib.unified_diff(before, after, name, "the sources", lineterm="", n=1)))
    return problems


def all_pages(root=ROOT):
    return [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]


def main(arguments):
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    write = "--check" not in arguments
    names = [a for a in arguments if a != "--check"]
    problems = check([Path(n).resolve() for n in names] or all_pages(), write=write)
    for problem in problems:
        print(problem)
    if problems and not write:
        print("code in the pages differs from the sources; tools/docs_code.py puts it right")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
