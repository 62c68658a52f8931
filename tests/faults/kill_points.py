#!/usr/bin/env python3
"""usage: kill_points.py KILN [mpi|threads] [RANKS]

Kills one rank of a run at each point that --inject knows, one after the other, and resumes each time. Every kill must end
the whole job, with one line that names the rank, and no rank may be left over; the run must end with the same bits as an
undisturbed one. How soon a job ends after a kill is measured by dist_ranks/kiln_run.sh, which knows when it killed. 77: the ranks cannot be started here."""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

kiln, transport = os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "mpi"
ranks = int(sys.argv[3]) if len(sys.argv) > 3 else 2
LIMIT_S = 120
SAVE_EVERY = 2
# Each comes at a step of its own, past the checkpoint the life before it left; a point of a save at a multiple of 2.
POINTS = ["init", "forward", "backward", "reduce", "update", "save", "save.sync", "save.manifest", "save.publish",
          "save.retire", "finalize"]
ONLY_RANK_0 = {"save.manifest", "save.publish", "save.retire"}
STEPS = SAVE_EVERY * (len(POINTS) + 2)


def fail(what, text=""):
    print(f"kill_points: FAILED: {what}\n{text}", file=sys.stderr)
    sys.exit(1)


def command(work, name, extra=()):
    train = ["train", "--text", str(work / "text"), "--size", "nano", "--batch", "4", "--ctx", "16", "--threads", "1",
             "--canonical", "--sample-tokens", "0", "--val-fraction", "0", "--warmup", "2", "--save-every", str(SAVE_EVERY),
             "--strategy", "ddp:flat", "--seed", "1", "--out", str(work / name), *extra]
    if transport == "mpi":
        return [kiln, "run", "--nproc", str(ranks), "--", *train]
    return [kiln, *train, "--ranks", str(ranks)]


def run(arguments):
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
    return done


def bits(folder):
    files = sorted((folder / "checkpoints" / f"step-{STEPS:08d}").glob("*.safetensors"))
    return [hashlib.sha256(f.read_bytes()).hexdigest() for f in files]


def left_over(work):
    """Ranks that still train into the folder."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(work).encode() in (entry / "cmdline").read_bytes():
                if int(entry.name) != os.getpid():
                    found.append(entry.name)
        except OSError:
            continue
    return found


def no_orphans(work, what):
    for _ in range(50):
        if not left_over(work):
            return
        time.sleep(0.1)
    fail(f"{what}: still running: {left_over(work)}")


def kill_at(work, point, victim, step):
    spec = f"kill:rank={victim},point={point}" + ("" if point == "init" else f",step={step}")
    done = run(command(work, "harried", ["--steps", str(STEPS), "--inject", spec]))
    if done.returncode == 0:
        fail(f"{spec}: exit 0", done.stderr)
    if "FAULT INJECTION IS ON" not in done.stderr:
        fail(f"{spec}: it was not said that faults are injected", done.stderr)
    if transport == "mpi":
        lines = re.findall(r"^kiln: .*$", done.stderr, re.M)
        if len(lines) != 1 or not re.match(rf"kiln: rank {victim}( \(pid \d+ on .*\))? was ended by signal 9", lines[0]):
            fail(f"{spec}: not one line that names rank {victim}", done.stderr)
    elif done.returncode != -9:
        fail(f"{spec}: exit {done.returncode}", done.stderr)
    no_orphans(work, spec)


def main():
    if transport == "mpi" and shutil.which("mpirun") is None:
        print("skipped: ranks that are killed: mpirun was not found")
        return 77
    with tempfile.TemporaryDirectory(prefix="kill-points-") as folder:
        work = pathlib.Path(folder)
        (work / "text").write_text("".join(f"the cat sat on mat {i % 7}, the dog on log {i % 11}\n" for i in range(300)))
        done = run(command(work, "calm", ["--steps", str(STEPS)]))
        if done.returncode == 3:
            print(f"skipped: ranks that are killed: {done.stderr.strip()}")
            return 77
        if done.returncode != 0:
            fail("the undisturbed run", done.stderr)
        kills = 0
        for i, point in enumerate(p for p in POINTS if p != "finalize"):
            victim = 0 if point in ONLY_RANK_0 else i % ranks
            kill_at(work, point, victim, SAVE_EVERY * (i + 1))
            kills += 1
            print(f"{point}: rank {victim}", flush=True)
        done = run(command(work, "harried", ["--steps", str(STEPS)]))
        if done.returncode != 0:
            fail("the run cannot be resumed", done.stderr)
        if not bits(work / "calm") or bits(work / "calm") != bits(work / "harried"):
            fail("the run that was killed ends in other bits than the undisturbed one")
        # Past its last step there is nothing to resume.
        done = run(command(work, "last", ["--steps", str(STEPS), "--inject", "kill:rank=1,point=finalize"]))
        if done.returncode == 0 or bits(work / "last") != bits(work / "calm"):
            fail("killed after the last save, it should exit with an error and leave its checkpoint", done.stderr)
        no_orphans(work, "finalize")
        kills += 1
        said = "one line that names it" if transport == "mpi" else "ended by SIGKILL"
        print(f"{kills} points, a rank of {ranks} over {transport} killed at each: {said}, bits equal to the "
              f"undisturbed run, no orphans")
    return 0


if __name__ == "__main__":
    sys.exit(main())
