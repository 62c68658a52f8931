#!/usr/bin/env python3
"""usage: check_outputs.py BUILD_TREE [PAGE...]

Runs the commands whose output docs/*.md show, and fails where a shown line has words that the program does not
print, in that order. Numbers, units and names that differ by machine are not compared. The commands are those that stand
above their output in a fence; tests/docs/outputs.txt names them for other fences, and the quicker ones run in place of
slow ones."""
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pages

SECONDS = 100  # of one command, on a busy machine
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d.,:]*(?:e[-+]?\d+)?(?:x|%)?(?![\w.])|\b(?=[a-f]*\d)[0-9a-f]{7,}\b")
UNIT = re.compile(r"\b(?:B|KiB|MiB|GiB|KB|MB|GB|K|M|G|ns|us|ms|s|min)\b(?!/)")
WORD = re.compile(r"[A-Za-z_][\w'./+-]*")


def words(line, varying=frozenset()):
    """What is compared of a line."""
    found = WORD.findall(UNIT.sub(" ", NUMBER.sub(" ", line)))
    return [w for w in found if w not in varying]


@dataclass
class Output:
    page: str
    line: int
    command: str
    lines: list


def first_difference(shown, printed, varying):
    """The first shown line that has no line of the same words in what was printed after the one before; or None."""
    at = 0
    have = [words(line, varying) for line in printed]
    for line in shown:
        wanted = words(line, varying)
        if not wanted:
            continue
        try:
            at = have.index(wanted, at) + 1
        except ValueError:
            return line
    return None


class Wanted:
    """tests/docs/outputs.txt: "PAGE | first line of a fence, * for anything | COMMAND", and "varies in PAGE | words"."""

    def __init__(self, path):
        self.entries, self.varying, self.excused = [], {}, {}
        for line in path.read_text().splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            parts = [part.strip() for part in line.split(" | ", 2)]
            if parts[0].startswith("varies in "):
                self.varying.setdefault(parts[0].removeprefix("varies in "), set()).update(parts[1].split())
            else:
                pattern = ".*".join(re.escape(part) for part in parts[1].split("*"))
                self.entries.append((parts[0], re.compile(pattern + r"\Z"), parts[1], parts[2]))
        self.used = set()

    def command(self, page, first):
        for name, pattern, text, command in self.entries:
            if name == page and pattern.match(first):
                self.used.add((name, text))
                return command
        return None

    def unused(self, names):
        return [f"{name}: no fence begins with '{text}'" for name, _, text, _ in self.entries
                if name in names and (name, text) not in self.used]


def outputs_of(page, wanted):
    """The outputs that a page shows, each with the command that prints it."""
    name = str(page.relative_to(pages.ROOT))
    found = []
    for fence in pages.fences(page):
        if fence.language not in ("", "console", "bash", "sh") or not fence.lines:
            continue
        blocks, block = [], ["", fence.line, []]
        for offset, line in enumerate(fence.lines):
            if line.startswith("$ "):
                blocks.append(block)
                block = [pages.without_remark(line[2:]), fence.line + offset, []]
            else:
                block[2].append(line)
        for command, line, shown in blocks + [block]:
            if not any(text.strip() for text in shown):
                continue
            instead = wanted.command(name, f"$ {command}" if command else shown[0].rstrip())
            if instead or command:
                found.append(Output(name, line, instead or command, shown))
    return found


def run(command, build, setups):
    with tempfile.TemporaryDirectory() as folder:
        for entry in pages.ROOT.iterdir():
            if not entry.name.startswith((".", "build", "runs")):
                os.symlink(entry, Path(folder) / entry.name)
        os.symlink(build, Path(folder) / "build")
        environment = dict(os.environ, PATH=f"{build}:{os.environ['PATH']}", KILN_NO_INSTALL="1", COLUMNS="200",
                           CUDA_VISIBLE_DEVICES="")  # the pages show a CPU's
        got = None
        for text in setups + [command]:
            got = subprocess.run(["bash", "-uc", text], cwd=folder, env=environment, timeout=SECONDS,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return got.stdout.splitlines()


def problem(output, build, wanted, reasons):
    varying = wanted.varying.get(output.page, frozenset())
    where = f"{output.page}:{output.line}: {output.command}\n    "
    if not any(words(line, varying) for line in output.lines):
        return where + "shows no word that could be compared"
    try:
        printed = run(output.command, build, reasons.setups.get(output.page, []))
    except subprocess.TimeoutExpired:
        return where + f"took more than {SECONDS} s; name a quicker one in tests/docs/outputs.txt"
    missing = first_difference(output.lines, printed, varying)
    if missing is None:
        return None
    return where + f"the page shows\n      {missing}\n    which is not printed. Printed was\n      " + "\n      ".join(printed[:40])


def plant():
    """The comparison finds a word that is not printed, and lines in another order."""
    printed = ["peak   10.91 MiB", "total  237.9 K"]
    assert first_difference(["peak   9.1 KiB", "total 1"], printed, set()) is None
    assert first_difference(["most at once   10.91 MiB"], printed, set()) is not None
    assert first_difference(["total 1", "peak 1"], printed, set()) == "peak 1"


def main(build, *names):
    plant()
    wanted = Wanted(pages.ROOT / "tests/docs/outputs.txt")
    reasons = pages.Reasons.read(pages.ROOT / "tests/docs/commands.txt")
    chosen = [Path(n).resolve() for n in names] or sorted((pages.ROOT / "docs").glob("*.md"))
    outputs = [output for page in chosen for output in outputs_of(page, wanted)]
    failures = wanted.unused({str(page.relative_to(pages.ROOT)) for page in chosen})
    with ThreadPoolExecutor(2) as pool:
        failures += filter(None, pool.map(lambda o: problem(o, Path(build).resolve(), wanted, reasons), outputs))
    if failures:
        sys.exit("\n".join(failures) + f"\n{len(failures)} shown output(s) differ; mend the page, or say in "
                 "tests/docs/outputs.txt what prints it")
    if not outputs:
        sys.exit("no page shows an output")
    print(f"{len(outputs)} shown outputs are printed")


if __name__ == "__main__":
    main(*sys.argv[1:])
