#!/usr/bin/env python3
"""usage: sample_output.py KILN [--write] [PAGE...]

What README and docs/*.md show below a command line ("$ build/kiln ...") is what the program prints: the command is run
and compared line by line. Masked on both sides is what another machine, build or run has: MASKS below, each with its
reason. A line "..." of a page stands for any lines. Samples that are not compared are in OTHERS, with the reason. --write puts what is printed now into the pages."""
import difflib
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import pages

# (command, regular expression, what stands for it, why)
MASKS = [
    ("doctor", r"^(kiln +)[\d.]+ \([^()]+\)$", r"\1VERSION", "version, commit and compiler of the build"),
    ("doctor", r"^(cpu +).*$", r"\1MODEL", "the machine"),
    ("doctor", r"^(isa +).*$", r"\1FLAGS", "the machine"),
    ("doctor", r"^(kernels +).*$", r"\1ISA", "the machine"),
    ("doctor", r"^(cores +)\d+ usable \(\d+ online, \d+ allowed by affinity, .*\)$", r"\1CORES", "the machine"),
    ("doctor", r"^(memory +)[\d.]+ GiB, [\d.]+ GiB available$", r"\1SIZES", "the machine"),
    ("doctor", r"^(gpu|cuda|cublaslt|pcre2|mpi|nccl)( +).*$", r"\1\2PART", "what the build has and the machine offers"),
    ("doctor", r"^(ranks +).*: transports of `kiln run` here$", r"\1TRANSPORTS", "what the build has"),
    ("doctor", r"^load +.*$", "", "how busy the machine is"),
    ("doctor --collectives", r"[\d.]+ (us|ms|GB/s|MB/s)", r"N \1", "times"),
    ("ops", r"(c(?:pu|uda)  +)(available|built without CUDA.*|no GPU.*|needs .*|runs on .*)$", r"\1HERE", "what can run here"),
    ("ops", r"^  \* ", "    ", "which variant is taken here"),
]
# Samples that are not compared: (command, why).
OTHERS = [
    ("run", "tests/dist compare bits of ranks; times and ids of processes are the machine's"),
    ("train", "a training run's figures are the machine's; tests/cli compare them"),
    ("precision accumulation", "sums in the order of the machine's vectors; tests/studies check them against predictions"),
]


def command_of(text):
    words = shlex.split(text)
    return words[1:] if words and (words[0] == "kiln" or words[0].endswith("/kiln")) else None


def starts(words, command):
    return words[: len(command.split())] == command.split()


def samples(page):
    """(line, words of the command, lines shown) of fences with one command of kiln's and what it prints."""
    for fence in pages.fences(page):
        prompts = [i for i, line in enumerate(fence.lines) if line.startswith("$ ")]
        if len(prompts) != 1 or prompts[0] != 0:
            continue
        words = command_of(pages.without_remark(fence.lines[0][2:]))
        shown = fence.lines[1:]
        if words and any(line.strip() for line in shown):
            yield fence.line, words, shown


def masked(words, lines):
    kept = []
    for line in lines:
        for command, pattern, stand_in, _ in MASKS:
            if all(w in words for w in command.split()):
                line = re.sub(pattern, stand_in, line)
        kept.append(line.rstrip())
    while kept and not kept[-1]:
        kept.pop()
    return kept


def differences(words, shown, printed):
    """None where they agree."""
    want, got = masked(words, shown), masked(words, printed)
    if "..." in (line.strip() for line in want):
        pattern = "\n".join(r"(?:.*\n)*?.*" if line.strip() == "..." else re.escape(line) for line in want)
        if re.fullmatch(pattern, "\n".join(got)):
            return None
    elif want == got:
        return None
    return "\n".join(difflib.unified_diff(want, got, "the page", "the program", lineterm="", n=0))


def put_in(page, line, shown, printed):
    """The lines below the command, which is on `line`."""
    lines = page.read_text().splitlines(keepends=True)
    lines[line : line + len(shown)] = [p.rstrip() + "\n" for p in printed]
    page.write_text("".join(lines))


def check(kiln, page, write):
    problems, count = [], 0
    for line, words, shown in reversed(list(samples(page))):  # from below: lines above stay where they are
        if any(starts(words, command) for command, _ in OTHERS):
            continue
        count += 1
        with tempfile.TemporaryDirectory() as folder:
            ran = subprocess.run([kiln, *words], cwd=folder, capture_output=True, text=True, timeout=60)
        place = f"{page.relative_to(pages.ROOT)}:{line}: kiln {' '.join(words)}"
        if ran.returncode != 0:
            problems.append(f"{place}: status {ran.returncode}: {ran.stderr.strip()[-300:]}")
            continue
        difference = differences(words, shown, ran.stdout.splitlines())
        if difference and write and "..." not in shown:
            put_in(page, line, shown, ran.stdout.splitlines())
        elif difference:
            problems.append(f"{place}: the program prints something else\n{difference}")
    return problems, count


def self_test():
    """A sample that is out of date is found, and what is the machine's is not."""
    ops = "linear  y = x W^T\n    lt  cuda  built without CUDA; run `make cuda`".splitlines()
    assert differences(["ops"], ops, [ops[0], "  * lt  cuda  available"]) is None
    assert differences(["ops"], ops, [ops[0], "    l2  cuda  available"]) is not None
    assert differences(["ops"], ops, ops + ["rms_norm"]) is not None
    assert differences(["sizes"], ["a", "...", "d"], ["a", "b", "c", "d"]) is None
    assert differences(["sizes"], ["a", "...", "d"], ["a", "b", "c"]) is not None


def main(kiln, *names):
    self_test()
    problems, count = [], 0
    write = "--write" in names
    names = [n for n in names if n != "--write"]
    for page in [Path(n).resolve() for n in names] or pages.pages(pages.ROOT):
        found, compared = check(str(Path(kiln).resolve()), page, write)
        problems += found
        count += compared
    if problems:
        sys.exit("\n".join(problems))
    if not names and count < 4:
        sys.exit(f"only {count} samples were found in the pages; expected README's and those of docs/precision.md")
    print(f"{count} samples of the pages are what kiln prints")


if __name__ == "__main__":
    main(*sys.argv[1:])
