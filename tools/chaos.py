#!/usr/bin/env python3
"""usage: tools/chaos.py KILN [--cycles N] [--seed N] [--size NAME] [--steps N] [--save-every N] [--ranks 1,2,4,8]
       [--strategies ddp:bucketed,zero1,...] [--transports threads,mpi] [--life-seconds X]

Trains one run in many lives. In each life the ranks have another number, strategy and transport, drawn at random, and one
of them is killed (SIGKILL) at a random moment; the next life resumes. The end must have the same bits, weights and moments,
as a run that nobody disturbed. Every life must resume from the last checkpoint that was announced or a newer one, so no life
loses more than the steps since then. Prints the seed first: the same seed draws the same lives (not the same moments, which
are the machine's).

Exit 0 and a last line "chaos: ..." with the figures; 1 where something differs; 77 where no run can be started."""
import argparse
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

START_LIMIT_S = 60.0
DOWN_LIMIT_S = 10.0


def words(text):
    return text.split(",")


def arguments():
    a = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    a.add_argument("kiln")
    a.add_argument("--cycles", type=int, default=12)
    a.add_argument("--seed", type=int, default=None)
    a.add_argument("--size", default="nano")
    a.add_argument("--steps", type=int, default=None, help="default: 25 a cycle")
    a.add_argument("--save-every", type=int, default=10)
    a.add_argument("--ranks", type=words, default=["1", "2", "4", "8"])
    a.add_argument("--strategies", type=words, default=["ddp:bucketed", "zero1", "zero2", "fsdp"])
    a.add_argument("--transports", type=words, default=["threads", "mpi"])
    a.add_argument("--life-seconds", type=float, default=None, help="each life lasts so long; default: some steps")
    a.add_argument("--batch", type=int, default=8)
    a.add_argument("--ctx", type=int, default=16)
    return a.parse_args()


class Run:
    def __init__(self, options, work):
        self.o = options
        self.work = work
        self.steps = options.steps or 25 * options.cycles + 20
        text = work / "text"
        text.write_text("".join(f"the cat sat on mat {i % 7} and the dog sat on log {i % 11}\n" for i in range(400)))
        self.common = ["train", "--text", str(text), "--size", options.size, "--batch", str(options.batch), "--ctx", str(options.ctx), "--threads", "1",
                       "--canonical", "--chunks", "8", "--sample-tokens", "0", "--val-fraction", "0", "--steps",
                       str(self.steps), "--warmup", "2", "--save-every", str(options.save_every), "--json", "--seed", "1"]

    def command(self, out, ranks, strategy, transport, asynchronous):
        train = self.common + ["--out", str(out), "--strategy", strategy] + ["--async-save"] * asynchronous
        if transport == "mpi":
            return [self.o.kiln, "run", "--nproc", str(ranks), "--"] + train
        return [self.o.kiln] + train + ["--ranks", str(ranks)]

    def start(self, out, life, log, result=None):
        env = dict(os.environ, CHAOS_RUN=str(out))
        return subprocess.Popen(self.command(out, *life), stdin=subprocess.DEVNULL, stdout=result or log, stderr=log, env=env)

    def bits(self, out):
        folder = out / "checkpoints" / f"step-{self.steps:08d}"
        files = sorted(folder.glob("*.safetensors"))
        return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def last_step(out):
    """The last whole line of a step in metrics.jsonl."""
    try:
        text = (out / "metrics.jsonl").read_text()
    except FileNotFoundError:
        return 0
    found = re.findall(r'^\{[^\n]*"step":(\d+)[^\n]*\}$', text[:text.rfind("\n") + 1], re.M)
    return int(found[-1]) if found else 0


def generation(out):
    """Another one for each life: what a life resumes from is written anew, without the lines after it."""
    try:
        return (out / "metrics.jsonl").stat().st_ino
    except FileNotFoundError:
        return None


def last_saved(out):
    steps = [int(m.group(1)) for p in (out / "checkpoints").glob("step-*")
             if (m := re.fullmatch(r"step-(\d+)", p.name))]
    return max(steps, default=0)


def ranks_of(out):
    """Processes that train into that folder: those that have CHAOS_RUN, and train themselves."""
    mark = f"CHAOS_RUN={out}".encode()
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if mark not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            line = (entry / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, PermissionError, ProcessLookupError):
            continue
        if len(line) > 1 and line[1] == b"train":
            found.append(int(entry.name))
    return sorted(found)


class Failure(Exception):
    pass


def wait_for(what, limit, done):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if done():
            return
        time.sleep(0.01)
    raise Failure(f"{what} did not happen within {limit:.0f} s")


def one_life(run, out, rng, life, goal, log):
    """Starts it, kills a rank at `goal` or a moment after, and waits until all is down. What it cost."""
    saved, before = last_saved(out), generation(out)
    began = time.monotonic()
    child = run.start(out, life, log)
    try:
        wait_for("the first step", START_LIMIT_S, lambda: child.poll() is not None or (generation(out) != before and last_step(out) > saved))
        first = time.monotonic() - began
        if run.o.life_seconds is None:
            wait_for(f"step {goal}", START_LIMIT_S, lambda: child.poll() is not None or last_step(out) >= goal)
            time.sleep(rng.choice([0.0, rng.random() * 0.05]))  # in a step, or in the save that takes longer
        else:
            time.sleep(max(0, run.o.life_seconds - (time.monotonic() - began)))
        if child.poll() is not None:
            raise Failure(f"the run was over, exit {child.returncode}, before it was killed at step {goal}")
        alive = ranks_of(out)
        if not alive:
            raise Failure("no rank is there to be killed")
        victim = rng.choice(alive)
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        child.wait(timeout=START_LIMIT_S)
        wait_for("the end of all ranks", DOWN_LIMIT_S, lambda: not ranks_of(out))
        down = time.monotonic() - killed
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    if child.returncode == 0:
        raise Failure("exit 0 after a rank was killed")
    reached = last_step(out)
    return {"first": first, "down": down, "lost": max(0, reached - last_saved(out)), "reached": reached}


def calm(run, out):
    with (run.work / "calm.log").open("w") as log:
        status = run.start(out, (1, "none", "threads", False), log).wait()
    if status != 0:
        print((run.work / "calm.log").read_text(), file=sys.stderr)
        sys.exit(77 if status == 3 else 1)
    return run.bits(out)


def draw_life(rng, o):
    ranks = int(rng.choice(o.ranks))
    transport = rng.choice(o.transports)
    strategy = rng.choice(o.strategies) if ranks > 1 else "none"
    return (ranks, strategy, transport if ranks > 1 else "threads", rng.random() < 0.5)


def harry(run, out, rng):
    lives = []
    share = (run.steps - 20) / run.o.cycles
    for cycle in range(run.o.cycles):
        life = draw_life(rng, run.o)
        # Ahead of what is there, and far enough from the end that the run is still on its way.
        goal = min(max(last_saved(out) + 1, int(cycle * share) + rng.randint(1, max(1, int(share * 0.8)))), run.steps - 10)
        log_path = run.work / f"life-{cycle}.log"
        with log_path.open("w") as log:
            try:
                cost = one_life(run, out, rng, life, goal, log)
            except (Failure, subprocess.TimeoutExpired) as e:
                raise Failure(f"life {cycle} ({life[0]} x {life[1]} over {life[2]}): {e}\n{log_path.read_text()}") from None
        # An asynchronous save is there some steps later, at the latest when the next one begins.
        if cost["lost"] > run.o.save_every * (2 if life[3] else 1):
            raise Failure(f"life {cycle} lost {cost['lost']} steps; --save-every is {run.o.save_every}")
        print(f"life {cycle}: {life[0]} x {life[1]} over {life[2]}{', asynchronous saves' if life[3] else ''}, killed at step {cost['reached']}, "
              f"first step after {cost['first']:.2f} s, down after {cost['down']:.2f} s, {cost['lost']} steps lost", flush=True)
        lives.append(cost)
    return lives


def main():
    o = arguments()
    o.kiln = os.path.abspath(o.kiln)
    if "mpi" in o.transports and shutil.which("mpirun") is None:
        print("skipped: lives over mpi: mpirun was not found")
        o.transports.remove("mpi")
    seed = o.seed if o.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"chaos: seed {seed}", flush=True)
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        run = Run(o, pathlib.Path(folder))
        expected = calm(run, run.work / "calm")
        out = run.work / "harried"
        began = time.monotonic()
        try:
            lives = harry(run, out, rng)
            with (run.work / "end.log").open("w") as log, (run.work / "end.json").open("w") as result:
                status = run.start(out, draw_life(rng, o), log, result).wait()
            text = (run.work / "end.log").read_text()
            if status != 0:
                raise Failure(f"the last life ended with {status}\n{text}")
            if not expected or run.bits(out) != expected:
                raise Failure("the run that was killed ends in other bits than the calm one")
        except Failure as e:
            print(f"chaos: FAILED with seed {seed}: {e}", file=sys.stderr)
            return 1
        result = json.loads((run.work / "end.json").read_text())
        wall = time.monotonic() - began
        first = max(life["first"] for life in lives)
        print(f"chaos: {len(lives)} kills in {wall:.0f} s, bits equal to the calm run, at most "
              f"{max(life['lost'] for life in lives)} steps lost at --save-every {o.save_every}, first step after at most "
              f"{first:.2f} s, all ranks down after at most {max(life['down'] for life in lives):.2f} s, "
              f"{100 * result['effective_training']:.1f} % of the time in steps that count")
    return 0


if __name__ == "__main__":
    sys.exit(main())
