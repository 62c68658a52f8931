#!/usr/bin/env python3
"""usage: skipped_tests.py BUILD_TREE

How many tests the last ctest run in that tree skipped, and why, from its log: cases of GoogleTest, methods of unittest,
whole entries, and what a script says in a line "skipped: WHAT: WHY"."""
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

ENTRY = re.compile(r"^\d+/\d+ Test: (\S+)\n(.*?)(?=^\d+/\d+ Testing: |^End testing: |\Z)", re.M | re.S)
OUTPUT = re.compile(r"^Output:\n-+\n(.*?)^<end of output>$", re.M | re.S)
SHOWN = 3  # entries named beside a reason


def reasons_of(output, whole_entry):
    """One for each thing that was skipped in an entry."""
    lines = output.splitlines()
    reasons = [(lines[i + 1].strip() if i + 1 < len(lines) else "") for i, line in enumerate(lines)
               if re.search(r"\.(cpp|cu):\d+: Skipped$", line)]
    reasons += re.findall(r" \.\.\. skipped ['\"](.*)['\"]$", output, re.M)
    reasons += [why for _, why in re.findall(r"^(?:\w+: )?skipped: (?:([^:\n]+): )?(.+)$", output, re.M)]
    if whole_entry and not reasons:
        words = [line.strip() for line in lines if line.strip()]
        reasons = [words[-1] if words else ""]
    return [why or "(no reason given)" for why in reasons]


def summary(log):
    counts, entries, tests = Counter(), defaultdict(list), 0
    for name, text in ENTRY.findall(log):
        tests += 1
        output = OUTPUT.search(text)
        whole = re.search(r"^Test Pass Reason:|^Test Skipped", text, re.M) is not None
        for why in reasons_of(output.group(1) if output else "", whole):
            counts[why] += 1
            if name not in entries[why]:
                entries[why].append(name)
    if tests == 0:
        return "no tests in the log"
    if not counts:
        return f"skipped: none, in {tests} entries"
    page = [f"skipped: {sum(counts.values())} of what {tests} entries hold"]
    for why, n in counts.most_common():
        names = entries[why]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        page.append(f"{n:6}  {why}   ({', '.join(names[:SHOWN])}{more})")
    return "\n".join(page)


def main(words):
    if len(words) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    log = Path(words[0]) / "Testing" / "Temporary" / "LastTest.log"
    if not log.exists():
        print(f"skipped_tests: there is no {log}; ctest has not run there", file=sys.stderr)
        return 1
    print(summary(log.read_text(errors="replace")))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
