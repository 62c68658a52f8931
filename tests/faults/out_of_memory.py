#!/usr/bin/env python3
"""usage: out_of_memory.py KILN FAILING_MALLOC [--every] [--seconds S] [--seed N] [--case NAME] [--at N|N+]

Trains the smallest model for a step and saves it, again and again; each time another allocation fails, alone ("N") or with
all that follow ("N+"). However that ends, it ends well: either the run is done and its result is the usual one to the byte,
or the program says in one line that memory ran out and exits with 1. Never by a signal, never by hanging, and nothing
half-written stays.

Without --every a sample of about S seconds: every allocation at the beginning, then every k-th from an offset that differs
from run to run (--seed repeats it). --at does one point and shows what was said. 77: the shim does not work here."""
import argparse
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TRAIN = ["train", "--size", "nano", "--layers", "1", "--d-model", "16", "--d-ff", "32", "--heads", "2", "--kv-heads", "2",
         "--batch", "2", "--context", "8", "--save-every", "1", "--keep", "1", "--val-fraction", "0", "--sample-tokens", "4",
         "--lr", "1e-3", "--min-lr", "1e-3", "--warmup", "0", "--device", "cpu", "--json"]
# Name: steps of the run that is there before, and the options of the run that is tried.
CASES = {
    "start": (0, ["--steps", "1", "--threads", "2"]),
    "resume": (1, ["--steps", "2", "--threads", "1"]),
    "ranks": (0, ["--steps", "1", "--threads", "1", "--ranks", "2", "--strategy", "fsdp", "--transport", "threads"]),
}
JOBS = 2
SECONDS_EACH = 60  # of one run: it takes a tenth of one, and this is to tell a hang from a busy machine
DENSE = 64         # allocations at the beginning that are all tried
LACK = re.compile(r"memory|did not start|could be started|annot allocate", re.I)
MOST_FAILURES = 10


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Case:
    def __init__(self, name, kiln, shim, folder):
        self.name, self.kiln, self.shim, self.folder = name, kiln, shim, folder
        self.before, self.options = CASES[name]
        (folder / "text").write_text("".join(f"the cat sat on the mat and the dog sat on the log {i}\n" for i in range(60)))
        if self.before:
            self.train(folder / "before", None, ["--steps", str(self.before), "--threads", "1"])
        count = folder / "count"
        begun = time.monotonic()
        done = self.train(self.fresh("clean"), None, self.options, {"KILN_ALLOCATIONS": str(count)})
        self.seconds = time.monotonic() - begun
        if done.returncode != 0:
            raise SystemExit(f"{name}: status {done.returncode} without a failure: {done.stderr[-1000:]}")
        self.total = int(count.read_text()) if count.exists() else 0
        self.result, self.files = self.result_of(done.stdout), self.files_of(folder / "clean")

    def fresh(self, place):
        run = self.folder / place
        shutil.rmtree(run, ignore_errors=True)
        if self.before:
            shutil.copytree(self.folder / "before", run)
        return run

    def train(self, run, at, options, more=()):
        temporary = self.folder / f"{run.name}.temporary"
        temporary.mkdir(exist_ok=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("KILN_")}
        environment.update({"LD_PRELOAD": self.shim, "TMPDIR": str(temporary), **dict(more)})
        if at:
            environment["KILN_FAIL_ALLOCATION"] = at
        words = [self.kiln, *TRAIN, "--text", str(self.folder / "text"), "--out", str(run), *options]
        return subprocess.run(words, env=environment, capture_output=True, text=True, errors="replace", cwd=self.folder,
                              timeout=SECONDS_EACH, stdin=subprocess.DEVNULL)

    def result_of(self, text):
        """What the run has printed, without times and places."""
        page = json.loads(text)
        return {k: v for k, v in page.items()
                if k not in ("tokens_per_s", "step_ms", "load", "start_seconds", "effective_training", "of_peak", "host_wait_ms", "data_wait_share", "stall_ms", "checkpoint", "run", "metrics")}

    def files_of(self, run):
        """The tensors of each checkpoint that counts as one."""
        return {folder.name: [digest(folder / f"{part}.safetensors") for part in ("model", "optimizer")]
                for folder in sorted((run / "checkpoints").glob("step-*")) if (folder / "manifest.json").exists()}

    def leftovers(self, run):
        found = [p for p in run.rglob("*") if ".tmp" in p.name] + list((self.folder / f"{run.name}.temporary").iterdir())
        for folder in (run / "checkpoints").glob("step-*"):
            if not (folder / "manifest.json").exists():
                found.append(folder)
        for lines in run.glob("metrics.jsonl"):
            if any(not is_json(line) for line in lines.read_text().splitlines()):
                found.append(lines)
        found += [page for page in run.glob("run*.json") if not is_json(page.read_text())]
        return sorted(str(p.relative_to(self.folder)) for p in found)

    def is_done_with(self, files, said):
        """Whether these are the run's checkpoints. An older one may be left where the run said that it could not be found or removed:
        that is a warning, not a failure."""
        before = self.files_of(self.folder / "before") if self.before else {}
        left = {name: content for name, content in files.items() if name not in self.files}
        return ({name: files.get(name) for name in self.files} == self.files and
                all(before.get(name) == content and ("cannot list the old checkpoints" in said or
                                                     "cannot remove the old checkpoint" in said and name in said)
                    for name, content in left.items()))

    def wrong_with(self, at, place):
        """Status of the run whose allocation `at` fails, what is wrong with how it ended (nothing, as it should be), and what
        it said."""
        run = self.fresh(place)
        try:
            done = self.train(run, at, self.options)
        except subprocess.TimeoutExpired as late:
            return "hang", f"hangs for {SECONDS_EACH} s", str(late.stderr)
        said = [line for line in done.stderr.splitlines() if line.startswith("kiln: ")]
        wrong = ""
        if done.returncode == 0:
            files = self.files_of(run)
            if self.result_of(done.stdout) != self.result:
                wrong = f"is done with another result: {self.result_of(done.stdout)}"
            elif not self.is_done_with(files, done.stderr):
                wrong = f"is done with other files: {files}"
        elif done.returncode != 1:
            wrong = f"status {done.returncode}"
        elif len(said) != 1 or not LACK.search(said[0]) or "internal error" in said[0]:
            wrong = f"not one line on missing memory: {said}"
        elif done.stdout:
            wrong = f"half a result: {done.stdout[:200]}"
        else:
            known = {**(self.files_of(self.folder / "before") if self.before else {}), **self.files}
            odd = [name for name, files in self.files_of(run).items() if known.get(name) != files]
            if odd:
                wrong = f"checkpoints with other bytes: {odd}"
        if not wrong and self.leftovers(run):
            wrong = f"left behind: {self.leftovers(run)}"
        shutil.rmtree(run, ignore_errors=True)
        return done.returncode, wrong, done.stderr


def is_json(text):
    try:
        json.loads(text)
        return True
    except ValueError:
        return False


def points_of(case, options, seconds):
    """Which allocations fail, each alone and, less often, with all that follow."""
    if options.every:
        return [str(n) for n in range(1, case.total + 1)] + [f"{n}+" for n in range(1, case.total + 1, 16)]
    room = max(4 * DENSE, int(3 * seconds * JOBS / case.seconds))  # a run that fails ends sooner: in a third of the time
    step = max(1, case.total // max(1, room - DENSE))
    offset = random.randrange(step)
    print(f"{case.name}: {case.total} allocations; the first {DENSE} fail, and every {step}-th from {DENSE + 1 + offset} on",
          flush=True)
    alone = [*range(1, DENSE + 1), *range(DENSE + 1 + offset, case.total + 1, step)]
    return [str(n) for n in alone] + [f"{n}+" for n in alone[::4]]


def try_all(case, points):
    """Failures, at most some, and how often each status was seen."""
    statuses, failures = Counter(), []

    def one(item):
        if len(failures) >= MOST_FAILURES:
            return
        number, at = item
        status, wrong, said = case.wrong_with(at, f"run-{number % (4 * JOBS)}-{number}")
        statuses[status] += 1
        if wrong:
            failures.append(f"{case.name}: allocation {at}: {wrong}\n    " + "\n    ".join(said.strip().splitlines()[-4:]))

    with ThreadPoolExecutor(JOBS) as pool:
        list(pool.map(one, enumerate(points)))
    return failures, statuses


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0][7:])
    parser.add_argument("kiln")
    parser.add_argument("shim")
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--at")
    options = parser.parse_args()
    random.seed(options.seed)
    kiln, shim = str(Path(options.kiln).resolve()), str(Path(options.shim).resolve())
    print(f"seed {options.seed}", flush=True)
    names, failed = options.case or list(CASES), []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            case = Case(name, kiln, shim, Path(folder))
            if case.total < 1000:
                print(f"only {case.total} allocations were counted: the shim does not work here")
                return 77
            if options.at:
                print("\n".join(str(part) for part in case.wrong_with(options.at, "run")))
                continue
            begun = time.monotonic()
            points = points_of(case, options, options.seconds / len(names))
            failures, statuses = try_all(case, points)
            print(f"{name}: {len(points)} points in {time.monotonic() - begun:.0f} s, by status: {dict(statuses)}", flush=True)
            # A check that cannot fail is none: most failures must be noticed.
            if not failures and statuses[1] < len(points) // 3:
                failures.append(f"{name}: only {statuses[1]} of {len(points)} failures were noticed")
            failed += failures
    for line in failed:
        print(line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
