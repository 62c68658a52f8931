#!/usr/bin/env python3
"""Measured pages from stored rows: docs/results/results.json says which table is made of which rows by which command.

    tools/results.py render KILN          puts every generated table into its page
    tools/results.py check KILN           fails where a page is not what its rows make of it, byte for byte
    tools/results.py take FOLDER KILN     takes the rows of tools/measure_h200.sh into docs/results, then renders

An entry of "generated" has a name, the page, the files of rows, the words after `kiln` that render them, and the command that
measures them. Its place in the page is between the lines

    <!-- rows: NAME -->
    <!-- end of rows -->

An entry with "folder" instead of "page" is a report: a whole folder that `kiln report --from FOLDER` writes. An entry whose
rows are not there yet says in "awaiting" what its place shows until then. "without_rows" lists the pages that were measured
before rows were kept: with date and build, and with the mark "without stored rows" on the page and wherever another page cites
it. A page of docs/results is one or the other. "elsewhere" lists the measured tables of other pages, marked in the same way."""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = "docs/results/results.json"
MARK = "without stored rows"
END = "<!-- end of rows -->"


def begin_of(name):
    return f"<!-- rows: {name} -->"


def manifest_of(root):
    return json.loads((root / MANIFEST).read_text())


def has_rows(entry, root):
    return all((root / file).exists() for file in entry["rows"])


def run(kiln, words, root):
    done = subprocess.run([str(kiln), *words], cwd=root, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"kiln {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def section(text, name):
    """Where the entry's place in a page begins and ends: (from, to), without the two lines; or nothing."""
    begin = text.find(begin_of(name) + "\n")
    if begin < 0:
        return None
    begin += len(begin_of(name)) + 1
    end = text.find(END, begin)
    return (begin, end) if end >= 0 else None


def rendered(entry, kiln, root):
    text = run(kiln, entry["render"], root).strip("\n")
    return f"\n{text}\n\n"


def report_files(entry, kiln, root):
    """Every file of a report, by its path in the folder."""
    with tempfile.TemporaryDirectory() as folder:
        run(kiln, ["report", "--from", entry["folder"], "--out", folder], root)
        paths = [path for path in Path(folder).rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def pages_with_changes(manifest, kiln, root):
    """Each page as its rows make it: {path: bytes}."""
    pages = {}
    for entry in manifest["generated"]:
        if not has_rows(entry, root):
            continue
        if "folder" in entry:
            pages.update({f"{entry['folder']}/{name}": data for name, data in report_files(entry, kiln, root).items()})
            continue
        path = entry["page"]
        text = pages.get(path, (root / path).read_bytes()).decode()
        place = section(text, entry["name"])
        if place:
            text = text[: place[0]] + rendered(entry, kiln, root) + text[place[1] :]
        pages[path] = text.encode()
    return pages


def left_over(manifest, made, root):
    """Files in the folder of a report that its rows do not make: charts of an earlier one."""
    for entry in manifest["generated"]:
        if "folder" in entry and has_rows(entry, root):
            files = {str(f.relative_to(root)) for f in (root / entry["folder"]).rglob("*") if f.is_file()}
            yield from sorted(files - set(made) - set(entry["rows"]))


def render(kiln, root):
    manifest = manifest_of(root)
    made = pages_with_changes(manifest, kiln, root)
    for path in list(left_over(manifest, made, root)):
        (root / path).unlink()
        print(f"removed {path}")
    for path, data in made.items():
        if not (root / path).exists() or (root / path).read_bytes() != data:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(data)
            print(f"wrote {path}")


def take(folder, kiln, root):
    manifest, taken = manifest_of(root), 0
    for entry in manifest["generated"]:
        for file in entry["rows"]:
            measured = Path(folder) / (entry.get("measured_as", {}).get(file) or Path(file).name)
            if measured.exists():
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(measured, root / file)
                taken += 1
        if has_rows(entry, root):
            entry.pop("awaiting", None)
            replaced = entry.pop("replaces", [])
            manifest["without_rows"] = [old for old in manifest["without_rows"] if old["page"] not in replaced]
    if taken == 0:
        raise SystemExit(f"{folder} has none of the files of rows that {MANIFEST} names")
    (root / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
    render(kiln, root)


def main(arguments):
    match arguments:
        case ["render", kiln]:
            render(Path(kiln).resolve(), ROOT)
        case ["check", kiln]:
            import results_check

            results_check.check(Path(kiln).resolve(), ROOT)
        case ["take", folder, kiln]:
            take(folder, Path(kiln).resolve(), ROOT)
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
