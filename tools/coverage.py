#!/usr/bin/env python3
"""usage: tools/coverage.py BUILD_FOLDER [--errors]

What the tests have run, after them: line and branch coverage of the sources that a build with -DKILN_COVERAGE=REGEX
instrumented, folder by folder. With --errors also the lines of checkpoint and parser code that report an error and that nothing
has run. Branches that only an exception takes are not counted, since every call has one. gcov reads the counts."""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Code that reads what others wrote, or keeps what must not be lost.
GUARDED = re.compile(r"^src/(train/checkpoint/|train/run/run_folder|data/.*(tokenizer|shard|tiktoken|vocab)|model/hf_|base/(json|"
                     r"safetensors|atomic|placed|mapped|write_at|crc32c|folder)|tune/tune_file|dist/launch/rank_env|"
                     r"dist/comm/tcp)")
ERROR = re.compile(r"\bthrow\b|\b(fail|refuse|unexpected|fail_tensor|expected)\(")


def counts_of(gcda):
    """Per source: line to executions, and line to [branches taken, branches]."""
    done = subprocess.run(["gcov", "--json-format", "--branch-probabilities", "--stdout", str(gcda)], capture_output=True, text=True)
    lines, branches = collections.defaultdict(dict), collections.defaultdict(dict)
    for text in done.stdout.splitlines():
        if not text.startswith("{"):
            continue
        for file in json.loads(text)["files"]:
            path = pathlib.Path(file["file"])
            name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
            if not name.startswith("src/"):
                continue
            for line in file["lines"]:
                n = line["line_number"]
                lines[name][n] = max(lines[name].get(n, 0), line["count"])
                normal = [b["count"] > 0 for b in line["branches"] if not b["throw"]]
                before = branches[name].get(n, [])
                # The same line in another instantiation: taken where any of them took it.
                branches[name][n] = [a or b for a, b in zip(before, normal)] if len(before) == len(normal) else before or normal
    return lines, branches


def share(part, whole):
    return f"{100 * part / whole:5.1f} %" if whole else "    -  "


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0][7:])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--errors", action="store_true")
    options = parser.parse_args()
    found = sorted(options.build.rglob("*.gcda"))
    if not found:
        sys.exit(f"{options.build} has no counts: build it with -DKILN_COVERAGE=REGEX, then run tests")
    lines, branches = collections.defaultdict(dict), collections.defaultdict(dict)
    with ThreadPoolExecutor(4) as pool:
        for one_lines, one_branches in pool.map(counts_of, found):
            for name, counts in one_lines.items():
                for n, count in counts.items():
                    lines[name][n] = max(lines[name].get(n, 0), count)
            for name, taken in one_branches.items():
                for n, now in taken.items():
                    before = branches[name].get(n, [])
                    branches[name][n] = [a or b for a, b in zip(before, now)] if len(before) == len(now) else before or now
    totals = collections.defaultdict(lambda: [0, 0, 0, 0])
    for name in lines:
        if not name.endswith(".cpp") and not name.endswith(".h"):
            continue
        for folder in (str(pathlib.Path(name).parent), "all"):
            t = totals[folder]
            t[0] += sum(c > 0 for c in lines[name].values())
            t[1] += len(lines[name])
            t[2] += sum(sum(b) for b in branches[name].values())
            t[3] += sum(len(b) for b in branches[name].values())
    for folder in sorted(totals, key=lambda f: (f == "all", f)):
        a, b, c, d = totals[folder]
        print(f"{folder:32} lines {share(a, b)} of {b:6}   branches {share(c, d)} of {d:6}")
    missed = []
    for name in sorted(n for n in lines if GUARDED.match(n)):
        source = (ROOT / name).read_text().splitlines()
        for n, count in sorted(lines[name].items()):
            if count == 0 and n <= len(source) and ERROR.search(source[n - 1]):
                missed.append(f"{name}:{n}: {source[n - 1].strip()}")
    if options.errors:
        print("\n".join(missed))
    a, b, c, d = totals["all"]
    print(f"coverage: lines {share(a, b).strip()}, branches {share(c, d).strip()}, {len(missed)} error lines of checkpoint and parser code not run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
