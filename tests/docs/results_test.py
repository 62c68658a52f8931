#!/usr/bin/env python3
"""usage: results_test.py KILN

Fails where a measured page is not what its rows make of it, byte for byte; where a table of docs/results has neither rows nor a
place in the list of those without; and where such a page is cited without saying so. First in a tree made for it, in which each
of these is planted."""
import contextlib
import io
import json
import shutil
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import results  # noqa: E402
import results_check  # noqa: E402

ROW = {"command": "bench step", "status": "ok", "gate": "passed", "size": "small", "mode": "full", "dtype": "bf16", "batch": 4,
       "ctx": 512, "preset": "optimized", "p50_ms": 4.68, "device": "cuda:0", "build_id": "abc1234",
       "time": "2026-11-19T05:00:00Z", "host": {"device_name": "Card"}}  # fmt: skip
TABLE = {"name": "steps", "page": "docs/results/card.md", "rows": ["docs/results/card/step.jsonl"],
         "render": ["report", "--rows", "docs/results/card/step.jsonl", "--columns", "size,p50_ms", "--format", "md"],
         "measure": "make results"}  # fmt: skip
README_TABLE = dict(TABLE, name="readme", page="README.md")
OLD = {"page": "docs/results/old.md", "measured": "2026-11-15", "kiln": "14a6561", "why": "before rows were kept"}
PAGE = "# Card\n\n<!-- rows: steps -->\n<!-- end of rows -->\n"
ELSEWHERE = {"page": "README.md", "table": "| what | ms |", "measured": "2026-11-15", "kiln": "14a6561"}
README = "# It\n\n<!-- rows: readme -->\n<!-- end of rows -->\n\nOld: [old](docs/results/old.md), without stored rows.\n"
README += "\nAnd, without stored rows, 20 ms:\n\n| what | ms |\n|---|---|\n| a | 1.5 |\n| b | 2 |\n| c | 3 |\n| d | 4 |\n"


def tree(folder, kiln):
    """A small tree in which all is well."""
    root = Path(folder).resolve()
    (root / "docs/results/card").mkdir(parents=True)
    (root / "docs/results/card/step.jsonl").write_text(json.dumps(ROW) + "\n")
    (root / "docs/results/card.md").write_text(PAGE)
    (root / "docs/results/old.md").write_text("# Old\n\nMeasured without stored rows.\n\n| a |\n|---|\n| 1 |\n")
    (root / "README.md").write_text(README)
    write_manifest(root, [TABLE, README_TABLE], [OLD])
    results.render(kiln, root)
    return root


def write_manifest(root, generated, without):
    manifest = {"generated": generated, "without_rows": without, "elsewhere": [ELSEWHERE]}
    (root / results.MANIFEST).write_text(json.dumps(manifest))


def edit(root, path, old, new):
    text = (root / path).read_text()
    assert old in text, (path, old, text)
    (root / path).write_text(text.replace(old, new, 1))


def row_with(**changed):
    row = {key: value for key, value in dict(ROW, **changed).items() if value is not None}
    return lambda root: (root / "docs/results/card/step.jsonl").write_text(json.dumps(row) + "\n")


# What is planted, and what must be said of it.
PLANTED = [
    (lambda r: edit(r, "docs/results/card.md", "4.68", "4.18"), "docs/results/card.md: is not what its rows make of it"),
    (lambda r: edit(r, "README.md", "4.68", "4.18"), "README.md: is not what its rows make of it"),
    (row_with(p50_ms=4.9), "docs/results/card.md: is not what its rows make of it"),
    (lambda r: edit(r, "docs/results/card.md", "# Card", "# Card\n\n| x |\n|---|\n| 4 |\n"), "has a table that no rows make"),
    (lambda r: edit(r, "docs/results/card.md", "<!-- rows: steps -->", ""), "has no lines '<!-- rows: steps -->'"),
    (lambda r: edit(r, "docs/results/old.md", "without stored rows", "well"), "is listed without rows and does not say so"),
    (lambda r: edit(r, "README.md", "without stored rows", "fast"), "README.md:13: cites docs/results/old.md"),
    (lambda r: edit(r, "README.md", "# It", "# It\n\n| a | ms |\n|---|---|\n| x | 4.5 |\n| y | 3.2 (3-4) |\n| 1 | 2 |"),
     "README.md:3: measured figures that no rows make"),
    (lambda r: edit(r, "README.md", "20 ms", "20 ms\n\nMore."), "README.md:19: the paragraph before or after"),
    (lambda r: edit(r, "README.md", "| what |", "| that |"), "lists a table that README.md does not have"),
    (lambda r: (r / "docs/results/new.md").write_text("# New\n"), "docs/results/new.md: is neither generated"),
    (lambda r: (r / "docs/results/new.svg").write_text("<svg/>"), "docs/results/new.svg: is neither generated"),
    (lambda r: (r / "docs/results/old.md").unlink(), "old.md is listed without rows and is not there"),
    (lambda r: (r / "docs/results/card/step.jsonl").unlink(), "its rows are not there"),
    (row_with(gate="not-verified"), "kiln report --rows docs/results/card/step.jsonl"),
    (row_with(build_id="abc1234-dirty.01234567"), "which no commit has"),
    (row_with(build_id=None), "build_id or peer_version"),
    (row_with(host=None), "does not say its host"),
    (lambda r: (r / "docs/results/card/step.jsonl").write_text("{\n"), "is no JSON"),
    (lambda r: write_manifest(r, [dict(TABLE, awaiting="the card"), README_TABLE], [OLD]), "is still said to await them"),
    (lambda r: write_manifest(r, [dict(TABLE, measure=""), README_TABLE], [OLD]), "steps has no measure"),
    (lambda r: write_manifest(r, [TABLE, README_TABLE], [dict(OLD, kiln="")]), "does not say kiln"),
]


def misjudged(kiln):
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        root = tree(folder, kiln)
        wrong += [f"a sound tree: {problem}" for problem in results_check.problems(kiln, root)]
        if "| small | 4.68 |" not in (root / "README.md").read_text():
            wrong.append("the README's table was not rendered")
    for number, (plant, said) in enumerate(PLANTED):
        with tempfile.TemporaryDirectory() as folder:
            root = tree(folder, kiln)
            plant(root)
            found = results_check.problems(kiln, root)
            if not any(said in problem for problem in found):
                wrong.append(f"planted {number}: expected '{said}', found {found}")
    return wrong + misjudged_take(kiln) + misjudged_report(kiln)


def misjudged_report(kiln):
    """A report's folder: its rows make all of it, and who cites it as without rows is told."""
    with tempfile.TemporaryDirectory() as folder:
        root = tree(folder, kiln)
        rows = root / "docs/results/whole/results.jsonl"
        rows.parent.mkdir()
        rows.write_text(json.dumps(ROW) + "\n")
        report = {"name": "whole", "folder": "docs/results/whole", "rows": ["docs/results/whole/results.jsonl"], "measure": "m"}
        write_manifest(root, [TABLE, README_TABLE, report], [OLD])
        (rows.parent / "left_over.svg").write_text("<svg/>")
        said = ["left_over.svg: is in a report and its rows do not make it", "docs/results/whole/report.md: is not there"]
        found = results_check.problems(kiln, root)
        wrong = [f"a report: expected '{text}', found {found}" for text in said if not any(text in f for f in found)]
        results.render(kiln, root)
        wrong += [f"a rendered report: {problem}" for problem in results_check.problems(kiln, root)]
        edit(root, "docs/results/whole/report.md", "4.68", "4.18")
        edit(root, "README.md", "# It", "# It\n\nNew, without stored rows: [new](docs/results/whole/report.md).")
        found = results_check.problems(kiln, root)
        said = ["docs/results/whole/report.md: is not what its rows make of it", "README.md:3: says 'without stored rows' of"]
        return wrong + [f"an edited report: expected '{text}', found {found}" for text in said if not any(text in f for f in found)]


def misjudged_take(kiln):
    """Rows that were awaited come in, and their mark goes."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as measured:
        root = tree(folder, kiln)
        write_manifest(root, [dict(TABLE, awaiting="the card"), dict(README_TABLE, awaiting="the card")], [OLD])
        rows = root / "docs/results/card/step.jsonl"
        shutil.move(rows, Path(measured) / "step.jsonl")
        (root / "docs/results/card.md").write_text(PAGE.replace("<!-- end", "Old figures, without stored rows.\n<!-- end"))
        (root / "README.md").write_text(README.replace("<!-- end", "Old figures, without stored rows.\n<!-- end", 1))
        wrong = [f"while awaiting rows: {problem}" for problem in results_check.problems(kiln, root)]
        results.take(measured, kiln, root)
        wrong += [f"with its rows: {problem}" for problem in results_check.problems(kiln, root)]
        if "Old figures" in (root / "docs/results/card.md").read_text() or not rows.exists():
            wrong.append("the rows were not taken in")
        return wrong


def main(kiln):
    kiln = Path(kiln).resolve()
    with contextlib.redirect_stdout(io.StringIO()):  # what is written in the trees made for it
        wrong = misjudged(kiln)
    if wrong:
        sys.exit("the check misjudges what was planted:\n" + "\n".join(wrong))
    results_check.check(kiln, ROOT)


if __name__ == "__main__":
    main(*sys.argv[1:])
