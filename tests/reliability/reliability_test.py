#!/usr/bin/env python3
"""docs/reliability.md is made of the files beside this one, and tools/reliability.py notices what is wrong with them."""
import importlib.util
import json
import pathlib
import re
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
spec = importlib.util.spec_from_file_location("reliability", ROOT / "tools/reliability.py")
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)


def expect(ok, what):
    if not ok:
        sys.exit(f"reliability_test: {what}")


def refused(change):
    """Whether rows that were changed so are refused."""
    table = json.loads(real.read_text())
    change(table)
    tool.ROWS.write_text(json.dumps(table))
    try:
        tool.rows()
    except SystemExit:
        return True
    return False


expect(tool.rendered() == tool.PAGE.read_text(), "the page is old: tools/reliability.py render")
real = tool.ROWS
with tempfile.TemporaryDirectory() as folder:
    tool.ROWS, tool.RESULTS = pathlib.Path(folder) / "rows.json", pathlib.Path(folder) / "results.json"
    expect(not refused(lambda t: None), "the rows as they are are refused")
    expect(refused(lambda t: t.pop("R7")), "a row that is missing is not noticed")
    expect(refused(lambda t: t["R7"].pop("shown")), "a row without a command or a reason is not noticed")
    expect(refused(lambda t: t["R7"]["shown"][0].update(where="nowhere")), "an unknown place is not noticed")
    tool.ROWS.write_text(real.read_text())
    expect("| no run recorded |" in tool.table(), "a row that never ran has a figure")
    command = json.loads(real.read_text())["R12"]["shown"][0]["command"]
    tool.RESULTS.write_text(json.dumps({"R12": {command: {"figure": "F1", "passed": False, "date": "D1", "build": ""}}}))
    expect("| F1 | D1, FAILED |" in tool.table(), "a failure is not shown")


def outcome(command, figure):
    return tool.run_check({"command": command, "figure": figure, "where": "test"})[:2]


expect(outcome("echo 5 kills", r"(\d+) kills") == ("5", True), "a figure is not found")
expect(outcome("echo 5 kills; exit 1", r"(\d+) kills") == ("exit 1", False), "a failure passes")
expect(not outcome("echo nothing", r"(\d+) kills")[1], "a missing figure passes")
expect(outcome("exit 77", "x") == ("skipped here", False), "a skip passes")

# The page's table of kinds is that of the program.
source = (ROOT / "src/train/inject/injection.cpp").read_text()
kinds = {name: tuple(re.findall(r'"(\w+)"', keys))
         for name, keys in re.findall(r'\{"(\w+)",\s*FaultKind::\w+,\s*\{([^}]*)\}', source)}
page = tool.PAGE.read_text()
shown = {name: tuple(re.findall(r"`(\w+)`", keys)) for name, keys in re.findall(r"^\| `(\w+)` \| ((?:`\w+` ?)+)\|", page, re.M)}
expect(len(kinds) == 8 and kinds == shown, f"kinds of the program: {kinds}; of the page: {shown}")
points = re.findall(r'\{"([\w.]+)", FaultPoint::', source)
expect(len(points) == 11 and all(f"`{p}`" in page for p in points), f"the page does not have every point of {points}")
