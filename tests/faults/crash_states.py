#!/usr/bin/env python3
"""usage: crash_states.py KILN [--states N] [--seed N] [--case NAME] [--plant files|folders|order] [--jobs N]

What a power cut leaves. A small run that saves is watched by strace; its writes, syncs, renames and removals are replayed
onto folders that the disk could hold had the power gone at any of them: unsynced data dropped, torn at 512 bytes or 4 KiB,
reordered, names not yet there. In each the same command must resume from the checkpoint before or the one after, from the
one after where the save was over, and end in the bytes of the undisturbed run.

Before that, mistakes are planted, which must be found: a program that syncs no file, one that syncs no folder, and one
that removes the old checkpoint first. --plant shows one of them. 77: strace cannot be used here."""
import argparse
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import crash_disk

TRAIN = ["train", "--size", "nano", "--layers", "1", "--d-model", "16", "--d-ff", "32", "--heads", "2", "--kv-heads", "2",
         "--batch", "2", "--context", "16", "--save-every", "1", "--keep", "1", "--val-fraction", "0", "--sample-tokens", "0",
         "--lr", "1e-3", "--min-lr", "1e-3", "--warmup", "0", "--threads", "1", "--device", "cpu", "--json"]
# Steps that are done before the run that is watched, its last step, its options.
CASES = {
    "first": (0, 2, []),
    "resume": (2, 3, []),
    "ranks": (2, 3, ["--ranks", "2", "--strategy", "fsdp", "--transport", "threads"]),
    "async": (2, 4, ["--async-save", "--ranks", "2", "--strategy", "zero1", "--transport", "threads"]),
}
PLANTS = ("files", "folders", "order")
PLANTED_STATES = 300  # at most, until one is found


def trained(kiln, work, run, steps, options, trace=()):
    words = [*trace, kiln, *TRAIN, "--text", str(work / "text"), "--out", str(run), "--steps", str(steps), *options]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("KILN_")}
    return subprocess.run(words, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, cwd=work,
                          env=environment, timeout=120)


def bits(run, step):
    folder = run / "checkpoints" / f"step-{step:08d}"
    return [hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(folder.glob("*.safetensors"))]


class Case:
    def __init__(self, name, kiln, work):
        self.name, self.kiln, self.work = name, kiln, work
        self.first, self.steps, self.options = CASES[name]
        (work / "text").write_text("".join(f"the cat sat on the mat and the dog sat on the log {i}\n" for i in range(60)))
        world = work / "world"
        world.mkdir()
        run = world / "run"
        if self.first:
            self.expect_done(trained(kiln, work, run, self.first, self.options))
        self.before = crash_disk.Tree(world)
        trace = ["strace", "-f", "-qq", "-xx", "-s", "10000000", "-o", str(work / "log"), "-e",
                 f"trace={crash_disk.CALLS}"]
        self.expect_done(trained(kiln, work, run, self.steps, self.options, trace))
        self.ops, after = crash_disk.ops_of(work / "log", world, self.before)
        self.bits = bits(run, self.steps)
        # The log explains the folder to the byte: nothing was written by a call that is not known here.
        if dict(after.files()) != dict(crash_disk.Tree(world).files()):
            sys.exit(f"{name}: the calls that were seen do not make the folder")
        # From then on a save is over: the program has told others of the checkpoint.
        self.done = {}
        for i, op in enumerate(self.ops):
            if op.text == "rename latest.tmp latest":
                self.done[i] = self.first + len(self.done) + 1
        if sorted(self.done.values()) != list(range(self.first + 1, self.steps + 1)):
            sys.exit(f"{name}: expected a save after each step, saw {self.done}")

    def expect_done(self, run):
        if run.returncode != 0:
            sys.exit(f"{self.name}: exit {run.returncode} without a power cut: {run.stderr[-2000:]}")

    def planted(self, plant):
        """The operations of a program that leaves something out."""
        kinds = {i: isinstance(self.before.nodes.get(i), dict) for i in self.before.nodes}
        for op in self.ops:
            if op.kind == "enter":
                kinds[op.inode] = op.text.startswith("mkdir")
        if plant == "order":  # old checkpoints go before the new one is there for good
            cut = max(i for i, op in enumerate(self.ops) if op.kind == "rename" and ".tmp." in op.old[1])
            removed = [op for op in self.ops[cut:] if op.kind == "leave"]
            rest = [op for op in self.ops[cut:] if op.kind != "leave"]
            return self.ops[:cut] + removed + rest
        return [op for op in self.ops if op.kind != "sync" or kinds[op.inode] != (plant == "folders")]

    def must_have(self, ops, crash):
        """The step that must not be lost."""
        over = sum(1 for op in ops[:crash] if op.text == "rename latest.tmp latest")
        return self.first + over

    def wrong_with(self, tree, must, place):
        """What is wrong with how the run resumes from this; nothing, as it should be. And the step it resumed from."""
        folder = self.work / place
        tree.write_to(folder)
        run = folder / "run"
        try:
            done = trained(self.kiln, self.work, run, self.steps, self.options)
            if done.returncode != 0:
                return f"unrecoverable: exit {done.returncode}: {done.stderr.strip()[-600:]}", None
            page = json.loads(done.stdout)
            resumed = self.steps - page["steps_now"]
            if resumed < must:
                return f"step {must} had been saved, it resumed from {resumed}: {done.stderr.strip()[-600:]}", resumed
            if bits(run, self.steps) != self.bits:
                return "silently wrong: it ends in other bytes", resumed
            if left := [p.name for p in run.rglob("*") if ".tmp" in p.name]:
                return f"left behind: {left}", resumed
            return "", resumed
        except subprocess.TimeoutExpired:
            return "hangs", None
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def states(case, ops, count, rng):
    """(what it is, folder, step that must be there): `count` that differ, spread over all points and modes."""
    seen, points = set(), [(crash, mode) for mode in crash_disk.MODES for crash in range(len(ops) + 1)]
    tries = 0
    while len(seen) < count and tries < 20 * count + len(points):
        # Every point with every mode once, in another order each time, then points at random.
        if tries % len(points) == 0:
            rng.shuffle(points)
        crash, mode = points[tries % len(points)]
        tries += 1
        tree = crash_disk.crash_state(case.before, ops, crash, mode, rng)
        must = case.must_have(ops, crash)
        digest = hashlib.sha256(repr((must, list(tree.files()))).encode()).digest()
        if digest not in seen:
            seen.add(digest)
            last = ops[crash - 1].text if crash else "nothing"
            yield f"{case.name}: after call {crash} ({last}), {mode}", tree, must


def try_states(case, ops, count, rng, jobs, most_failures):
    failures, resumed, tried = [], {}, 0

    def one(item):
        number, (what, tree, must) = item
        if len(failures) >= most_failures:
            return None
        wrong, step = case.wrong_with(tree, must, f"state-{number}")
        return what, wrong, step

    with ThreadPoolExecutor(jobs) as pool:
        batch = []
        for item in enumerate(states(case, ops, count, rng)):
            batch.append(item)
            if len(batch) == 8 * jobs:
                outcomes = list(pool.map(one, batch))
                batch = []
            else:
                continue
            tried += collect(outcomes, failures, resumed)
            if len(failures) >= most_failures:
                break
        tried += collect(list(pool.map(one, batch)), failures, resumed)
    return tried, failures, resumed


def collect(outcomes, failures, resumed):
    outcomes = [o for o in outcomes if o]
    for what, wrong, step in outcomes:
        if wrong:
            failures.append(f"{what}: {wrong}")
        resumed[step] = resumed.get(step, 0) + 1
    return len(outcomes)


def strace_works():
    if shutil.which("strace") is None:
        return "strace is not here"
    tried = subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True)
    return "" if tried.returncode == 0 else "strace may not trace here"


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0][7:])
    parser.add_argument("kiln")
    parser.add_argument("--states", type=int, default=40)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--plant", choices=PLANTS)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if why := strace_works():
        print(f"skipped: what a power cut leaves: {why}")
        return 77
    kiln, rng = os.path.abspath(options.kiln), random.Random(options.seed)
    print(f"seed {options.seed}", flush=True)
    names, began = options.case or list(CASES), time.monotonic()
    total, plants_found = 0, 0
    for i, name in enumerate(names):
        with tempfile.TemporaryDirectory(prefix="crash-states-") as folder:
            case = Case(name, kiln, pathlib.Path(folder))
            for plant in [options.plant] if options.plant else PLANTS if name == "resume" else ():
                tried, failures, _ = try_states(case, case.planted(plant), PLANTED_STATES, rng, options.jobs, 1)
                if not failures:
                    print(f"{name}: the planted mistake ({plant}) was not found in {tried} states")
                    return 1
                print(f"{name}: planted ({plant}) and found after {tried} states: {failures[0].splitlines()[0][:220]}", flush=True)
                plants_found += 1
            if options.plant:
                continue
            count = options.states // len(names) + (i < options.states % len(names))
            tried, failures, resumed = try_states(case, case.ops, count, rng, options.jobs, 5)
            if failures:
                print("\n".join(failures))
                return 1
            print(f"{name}: {tried} states of {len(case.ops)} operations, resumed from {dict(sorted(resumed.items()))}",
                  flush=True)
            if tried and len(resumed) < 2 and tried > 20:
                print(f"{name}: all resumed from one step: the states are not what they should be")
                return 1
            total += tried
    if total:
        print(f"{total} states after a power cut in {time.monotonic() - began:.0f} s: 0 unrecoverable, 0 silently wrong, no "
              f"save lost that was over; {plants_found} planted mistakes found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
