#!/usr/bin/env python3
"""usage: run_commands.py BUILD_TREE [PAGE...]

Runs the command lines that README and docs/*.md show, each page's in order, in a folder of their own that looks like the
source tree. Not run is what tests/docs/commands.txt lists, with the reason. Every line must end with status 0."""
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pages

SECONDS = 50  # of one command, on a busy machine


def run_page(page, build, reasons):
    """(failures, commands run, lines of a table) of one page."""
    name = str(page.relative_to(pages.ROOT))
    wanted = [c for c in pages.commands(page, pages.ROOT) if reasons.why_not(c.text) is None]
    failures, table = [], []
    with tempfile.TemporaryDirectory() as folder:
        for entry in pages.ROOT.iterdir():
            if not entry.name.startswith((".", "build", "runs")):
                os.symlink(entry, Path(folder) / entry.name)
        os.symlink(build, Path(folder) / "build")
        environment = dict(os.environ, PATH=f"{build}:{os.environ['PATH']}", KILN_NO_INSTALL="1")
        setups = [pages.ShownCommand(name, 0, text) for text in reasons.setups.get(name, [])]
        for command in setups + wanted:
            begun = time.monotonic()
            try:
                got = subprocess.run(["bash", "-euc", command.text], cwd=folder, env=environment, timeout=SECONDS,
                                     stdin=subprocess.DEVNULL, capture_output=True, text=True)
                problem = "" if got.returncode == 0 else f"status {got.returncode}: {got.stderr.strip()[-300:]}"
            except subprocess.TimeoutExpired:
                problem = f"took more than {SECONDS} s"
            table.append(f"{time.monotonic() - begun:6.1f} s  {name}:{command.line}  {command.text}")
            if problem:
                failures.append(f"{name}:{command.line}: {command.text}\n    {problem}")
    return failures, len(wanted), table


def main(build, *names):
    reasons = pages.Reasons.read(pages.ROOT / "tests/docs/commands.txt")
    chosen = [Path(n).resolve() for n in names] or pages.pages(pages.ROOT)
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda page: run_page(page, Path(build).resolve(), reasons), chosen))
    print("\n".join(sorted((line for _, _, table in results for line in table), reverse=True)))
    failures = [f for page_failures, _, _ in results for f in page_failures]
    if failures:
        sys.exit("\n".join(failures) + f"\n{len(failures)} command(s) of the pages failed; mend the page, or say in "
                 "tests/docs/commands.txt why it is not run")
    print(f"{sum(count for _, count, _ in results)} commands of the pages run")


if __name__ == "__main__":
    main(*sys.argv[1:])
