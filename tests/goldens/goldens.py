#!/usr/bin/env python3
"""usage: goldens.py make|check PROGRAM [PART...]

Goldens of kiln: README.md says what they are. `make` writes them from PROGRAM, `check` holds PROGRAM to them. Status 0:
all is as it was; 1: something is not; 77: every part was skipped."""
import importlib
import sys
import time

import common

PARTS = ["resume", "rows", "tune", "hashes", "peaks", "json_keys", "options"]  # a module each, with make and check


def check(name, program):
    """0, 1 or 77."""
    report = common.Report()
    begin = time.monotonic()
    try:
        program.require_isa()
        importlib.import_module(name).check(program, report)
    except common.Skip as why:
        print(f"{name}: skipped: {why}")
        return 77
    except AssertionError as error:
        report.expect(False, str(error))
    except Exception as error:  # a key that is gone, say: this part has failed, and the others are checked all the same
        report.expect(False, f"{type(error).__name__}: {error}")
    for line in report.failures:
        print(f"{name}: {line}")
    print(f"{name}: {report.checked - len(report.failures)} of {report.checked} as before, "
          f"{time.monotonic() - begin:.1f} s")
    if report.checked == 0:
        print(f"{name}: nothing was checked")
    return 1 if report.failures or report.checked == 0 else 0


def main():
    words = sys.argv[1:]
    if len(words) < 2 or words[0] not in ("make", "check") or any(w not in PARTS for w in words[2:]):
        print(f"{__doc__}\nPARTs: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    program = common.Program(words[1])
    names = words[2:] or PARTS
    if words[0] == "make":
        for name in names:
            print(f"{name}: {importlib.import_module(name).make(program)}")
        return 0
    results = [check(name, program) for name in names]
    return 1 if 1 in results else 77 if all(r == 77 for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
