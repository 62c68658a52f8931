#!/usr/bin/env python3
"""Every input in fuzz/corpus has a row in ORIGIN.md, and every name there is an input."""
import fnmatch
import pathlib
import re
import sys

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"


def patterns(text):
    """Of the first cells; a name without a folder is in the folder of the one before it."""
    found = []
    for cell in re.findall(r"^\| (`[^|]*`) \|", text, re.M):
        folder = ""
        for name in re.findall(r"`([^`]+)`", cell):
            folder = name.split("/")[0] if "/" in name else folder
            found.append(name if "/" in name else f"{folder}/{name}")
    return found


def missing(inputs, rows):
    return ([f"{i} has no row" for i in inputs if not any(fnmatch.fnmatch(i, r) for r in rows)] +
            [f"{r} is no input" for r in rows if not any(fnmatch.fnmatch(i, r) for i in inputs)])


inputs = sorted(str(f.relative_to(CORPUS)) for f in CORPUS.glob("*/*"))
rows = patterns((CORPUS / "ORIGIN.md").read_text())
if len(missing(inputs + ["fuzz_x/y"], rows)) != len(missing(inputs, rows)) + 1 or len(missing(inputs, rows + ["a/b"])) == 0:
    sys.exit("a planted mistake was not found")
if wrong := missing(inputs, rows):
    sys.exit("fuzz/corpus/ORIGIN.md: " + "; ".join(wrong))
print(f"{len(inputs)} inputs, each with its origin")
