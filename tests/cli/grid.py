#!/usr/bin/env python3
"""usage: grid.py KILN
Every command that stores rows sweeps with --grid: a process for each cell, rows marked with the cell, and what is
stored is not measured again.
"""
import json
import os
import subprocess
import sys
import tempfile

SMALL = "--size nano --device cpu --threads 1"
# By command: its arguments, and the axis.
SWEPT = {
    "memory": ("--size nano --device meta --export none", "ctx=8,16"),
    "profile": (f"{SMALL} --steps 1", "ctx=8,16"),
    "compare": (f"{SMALL} --ctx 8 --steps 2", "batch=1,2"),
    "measure": (f"{SMALL} --ctx 8 --steps 2", "batch=1,2"),
    "ablate": (f"{SMALL} --batch 1 --steps 2 --warmup 1 --gate-steps 1 --only prefetch", "ctx=8,16"),
    "plan": ("--size nano --check --devices 2 --ctx 8 --link latency=50us,bandwidth=1GB/s --candidates 1 --rounds 1 --steps 2",
             "batch=2,4"),
    "bench op": ("add --device cpu --threads 1", "rows=2,4"),
    "bench step": (f"{SMALL} --steps 2", "ctx=8,16"),
}


def run(kiln, out, command, arguments, axis):
    line = [kiln, *command.split(), *arguments.split(), "--grid", axis, "--out", out, "--json"]
    if command == "bench op":
        line += ["--shape", "cols=2"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=200)
    if done.returncode != 0:
        return None, f"exit {done.returncode}: {done.stderr.strip()[-300:]}"
    with open(os.path.join(out, "results.jsonl"), encoding="utf-8") as file:
        return [json.loads(text) for text in file], json.loads(done.stdout)


def why_wrong(kiln, command):
    arguments, axis = SWEPT[command]
    key, values = axis.split("=")
    with tempfile.TemporaryDirectory() as out:
        rows, page = run(kiln, out, command, arguments, axis)
        if rows is None:
            return page
        seen = {str(row["grid"][key]) for row in rows}
        if seen != set(values.split(",")):
            return f"rows of the cells {seen}, expected {values}"
        if any(row["status"] not in ("ok", "modelled") for row in rows):
            return f"rows are {[row['status'] for row in rows]}"
        if not page:
            return "an empty document"
        again, _ = run(kiln, out, command, arguments, axis)
        if again is None or len(again) != len(rows):
            return "what is stored is measured again"
    return None


def main():
    kiln, wrong = sys.argv[1], 0
    for command in SWEPT:
        why = why_wrong(kiln, command)
        print(f"{command}: {why or 'sweeps'}", flush=True)
        wrong += why is not None
    with tempfile.TemporaryDirectory() as out:  # what cannot be a cell is said before anything runs
        for words in ("memory --grid no-such=1", "plan --size nano --grid batch=1,2", "memory scaling --grid ctx=8"):
            done = subprocess.run([kiln, *words.split(), "--out", out], capture_output=True, text=True)
            if done.returncode != 2 or os.listdir(out):
                print(f"{words}: exit {done.returncode}, {os.listdir(out)} written: {done.stderr}")
                wrong += 1
    return 1 if wrong else 0


sys.exit(main())
