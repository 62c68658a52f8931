#!/usr/bin/env python3
"""usage: tools/reliability.py run [--where test,check,soak] [--only R3,R12] [--log FILE] [--keep]
       tools/reliability.py render | check

What kiln must survive, row by row: tests/reliability/rows.json says for each row which command shows it and where its figure
stands in what that command prints. `run` runs them and prints a line a command: row, command, figure, passed or FAILED,
and appends it to FILE (runs/soak.log); with --keep it also writes the figures into tests/reliability/results.json. `render`
makes the table of docs/reliability.md from the two files, and `check` fails where the page is another."""
import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROWS = ROOT / "tests/reliability/rows.json"
RESULTS = ROOT / "tests/reliability/results.json"
PAGE = ROOT / "docs/reliability.md"
BEGIN, END = "<!-- rows: reliability -->", "<!-- end of rows -->"
LIMIT_S = {"test": 900, "check": 3600, "soak": 6 * 3600}
NAMES = [f"R{n}" for n in range(1, 47)]


def read(path):
    return json.loads(path.read_text()) if path.exists() else {}


def rows():
    table = read(ROWS)
    if list(table) != NAMES:
        sys.exit(f"{ROWS}: rows are {', '.join(table)}; expected R1 to R46 in order")
    for name, row in table.items():
        unknown = set(row) - {"what", "shown", "missing"}
        if unknown or "what" not in row or not (row.get("shown") or row.get("missing")):
            sys.exit(f"{ROWS}: {name} needs 'what', and 'shown', 'missing' or both; it has {', '.join(row)}")
        for check in row.get("shown", []):
            if set(check) != {"command", "figure", "where"} or check["where"] not in LIMIT_S:
                sys.exit(f"{ROWS}: a check of {name} needs command, figure and where ({', '.join(LIMIT_S)})")
            re.compile(check["figure"])
    return table


def figure_of(output, pattern):
    """The last match, its groups joined; None where there is none."""
    found = list(re.finditer(pattern, output, re.M))
    if not found:
        return None
    return " ".join(g for g in found[-1].groups() if g) or found[-1].group(0)


def run_check(check):
    """A figure and whether it passed. A command that skips itself (77) has not passed."""
    try:
        done = subprocess.run(["bash", "-c", check["command"]], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, errors="replace", timeout=LIMIT_S[check["where"]])
    except subprocess.TimeoutExpired:
        return f"not over after {LIMIT_S[check['where']]} s", False, ""
    output = done.stdout + done.stderr
    figure = figure_of(output, check["figure"])
    if done.returncode == 77:
        return "skipped here", False, output
    if done.returncode != 0:
        return f"exit {done.returncode}", False, output
    if figure is None:
        return "the figure is not in what it printed", False, output
    return figure, True, output


def build_id():
    done = subprocess.run(["build/kiln", "--version"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.split("\n")[0].strip() if done.returncode == 0 else ""


def run(options):
    wheres = options.where.split(",")
    only = options.only.split(",") if options.only else NAMES
    if unknown := [n for n in only if n not in NAMES] + [w for w in wheres if w not in LIMIT_S]:
        sys.exit(f"unknown: {', '.join(unknown)}; rows are R1 to R46, places {', '.join(LIMIT_S)}")
    log = ROOT / options.log
    log.parent.mkdir(parents=True, exist_ok=True)
    results, failures, ran = read(RESULTS), 0, 0
    with log.open("a") as lines:
        def say(line):
            print(line, flush=True)
            lines.write(line + "\n")
            lines.flush()
        say(f"# {datetime.datetime.now().isoformat(timespec='seconds')} {build_id()}")
        for name, row in rows().items():
            if name not in only:
                continue
            for check in row.get("shown", []):
                if check["where"] not in wheres:
                    continue
                began = time.monotonic()
                figure, passed, output = run_check(check)
                ran += 1
                say(f"{name} | {check['command']} | {figure} | {'passed' if passed else 'FAILED'} | "
                    f"{time.monotonic() - began:.0f} s")
                if not passed:
                    failures += 1
                    print(output[-4000:], file=sys.stderr)
                results.setdefault(name, {})[check["command"]] = {
                    "figure": figure, "passed": passed, "date": datetime.date.today().isoformat(), "build": build_id()}
            if not row.get("shown"):
                say(f"{name} | - | {row['missing']} | not covered")
    if options.keep:
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    print(f"{ran} commands, {failures} failed; the log is {log.relative_to(ROOT)}")
    return 1 if failures or not ran else 0


def cell(text):
    return str(text).replace("|", "\\|").replace("<", "&lt;")


def table():
    results = read(RESULTS)
    lines = ["| row | must hold | shown by | figure | last run |", "|---|---|---|---|---|"]
    for name, row in rows().items():
        checks = row.get("shown", [])
        for i, check in enumerate(checks):
            last = results.get(name, {}).get(check["command"])
            figure = last["figure"] if last else "no run recorded"
            when = "" if not last else f"{last['date']}{'' if last['passed'] else ', FAILED'}"
            lines.append(f"| {name if i == 0 else ''} | {cell(row['what']) if i == 0 else ''} | `{cell(check['command'])}` "
                         f"({check['where']}) | {cell(figure)} | {when} |")
        if row.get("missing"):
            first = not checks
            lines.append(f"| {name if first else ''} | {cell(row['what']) if first else ''} | not covered: "
                         f"{cell(row['missing'])} | | |")
    return "\n".join(lines)


def rendered():
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END, 1)[1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run")
    runner.add_argument("--where", default="test,check,soak")
    runner.add_argument("--only")
    runner.add_argument("--log", default="runs/soak.log")
    runner.add_argument("--keep", action="store_true")
    for name in ("render", "check"):
        commands.add_parser(name)
    options = parser.parse_args()
    if options.command == "run":
        return run(options)
    page = rendered()
    if options.command == "render":
        PAGE.write_text(page)
    elif page != PAGE.read_text():
        print("docs/reliability.md is not what tests/reliability/*.json give: tools/reliability.py render", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
