#!/usr/bin/env python3
"""usage: readme_twin.py [--update]

README.zh.md says in Chinese what README.md says: the same headings in the same order, the same command lines and outputs, the
same rows in its tables, the same names in code, links and pictures, and the same figures. --update copies what is not
language: fences and the measured table."""
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README.zh.md"
FENCE = re.compile(r"^```[^\n]*\n.*?^```$", re.M | re.S)
TABLE = re.compile(r"(?:^\|[^\n]*\n)+", re.M)
TWINS = {"README.md", "README.zh.md"}  # each links to the other


def without_fences(text):
    return FENCE.sub("", text)


def headings(text):
    return [len(m.group(1)) for m in re.finditer(r"^(#+) ", without_fences(text), re.M)]


def first_cells(text):
    """Of every table; the heading's words are language, and measured tables are the same throughout."""
    return [[row.split("|")[1].strip() for row in table.strip().split("\n")[1:]]
            for table in TABLE.findall(without_fences(text))]


def names(text):
    return Counter(re.findall(r"`([^`\n]+)`", without_fences(text)))


def links(text):
    return Counter(t for t in re.findall(r"\]\(([^)]+)\)", without_fences(text)) if t not in TWINS)


def figures(text):
    """Numbers that stand for themselves: not those within names, links, code and headings."""
    prose = re.sub(r"`[^`\n]*`|\]\([^)]*\)|\[[^\]]*\]|<!--.*?-->", " ", without_fences(text))
    return Counter(re.findall(r"(?<![\w.])\d(?:[\d,]*\d)?(?:\.\d+)?", prose, re.A))


def difference(what, english, chinese):
    if english == chinese:
        return []
    if isinstance(english, Counter):
        return [f"{what}: only in README.md: {sorted((english - chinese).elements())}; "
                f"only in README.zh.md: {sorted((chinese - english).elements())}"]
    return [f"{what}: README.md has {english}, README.zh.md {chinese}"]


def problems(english, chinese):
    found = difference("levels of headings", headings(english), headings(chinese))
    found += difference("first cells of tables", first_cells(english), first_cells(chinese))
    found += difference("names in code", names(english), names(chinese))
    found += difference("links", links(english), links(chinese))
    found += difference("figures", figures(english), figures(chinese))
    for number, (a, b) in enumerate(zip(FENCE.findall(english), FENCE.findall(chinese)), 1):
        if a != b:
            found.append(f"fence {number} differs, which begins {a.splitlines()[1]!r}: tests/docs/readme_twin.py --update")
    if len(FENCE.findall(english)) != len(FENCE.findall(chinese)):
        found.append("there are not as many fences in both")
    return found


def updated(english, chinese):
    fences = iter(FENCE.findall(english))
    chinese = FENCE.sub(lambda m: next(fences, m.group(0)), chinese)
    measured = TABLE.search(english).group(0)
    return TABLE.sub(lambda m: measured, chinese, count=1)


def check_the_check(english, chinese):
    """A test that cannot fail is none: each kind of difference is found."""
    for what, other in {
        "heading": chinese.replace("## ", "### ", 1),
        "figure": chinese.replace("525 ms", "526 ms"),
        "command": chinese.replace("make demo ", "make dmeo "),
        "row": re.sub(r"^\| `kiln ops` .*\n", "", chinese, flags=re.M),
        "link": chinese.replace("](docs/tour.md)", "](docs/tuor.md)", 1),
    }.items():
        assert other != chinese and problems(english, other), f"a changed {what} is not noticed"


def main():
    english, chinese = ENGLISH.read_text(), CHINESE.read_text()
    if "--update" in sys.argv:
        CHINESE.write_text(updated(english, chinese))
        return
    found = problems(english, chinese)
    if found:
        sys.exit("\n".join(found))
    check_the_check(english, chinese)
    print(f"{len(headings(english))} headings, {len(FENCE.findall(english))} fences, {sum(figures(english).values())} "
          "figures are the same in both")


if __name__ == "__main__":
    main()
