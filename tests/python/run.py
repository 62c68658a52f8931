#!/usr/bin/env python3
"""usage: run.py MODULE...     the tests of python/kiln; status 77 where every one of them was skipped.

KILN_LIBRARY names the library under test, KILN_ABI_LAYOUT the program that prints the structs of the C header."""
import sys
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "python")]


def main():
    suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    if not result.wasSuccessful() or result.testsRun == 0:
        return 1
    # A subtest that was skipped has a test_case, which ran.
    skipped = sum(not hasattr(test, "test_case") for test, _ in result.skipped)
    return 77 if skipped == result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
