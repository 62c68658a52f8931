#!/usr/bin/env python3
"""usage: launcher.py path/to/kiln

What kiln run does before it starts anything, how it ends what it has started, and what others on the machine can see of
it. Most of it with a stand-in for mpirun, which starts no ranks; never more than two ranks are started here.
"""
import glob
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

KILN = os.path.abspath(sys.argv[1])
WORK = tempfile.mkdtemp(prefix="kiln-launcher-")
MARK = f"KILN_LAUNCHER_TEST={WORK}"
failures = []

# Notes how it was started, starts a process in a session of its own, and neither ends at SIGTERM.
STUCK = f"""#!/bin/bash
trap '' TERM INT HUP
printf '%s\\n' "$@" >{WORK}/args
env >{WORK}/env
setsid bash -c "trap '' TERM INT HUP; while :; do sleep 1; done" &
touch {WORK}/started
while :; do sleep 1; done
"""
# Only notes.
NOTES = f"""#!/bin/bash
printf '%s\\n' "$@" >{WORK}/args
env >{WORK}/env
"""


def check(what, fine, more=""):
    if not fine:
        failures.append(what)
        print(f"FAILED: {what}: {more}", file=sys.stderr)


def written(name):
    try:
        with open(os.path.join(WORK, name)) as file:
            return file.read()
    except FileNotFoundError:
        return ""


def environment(mpirun=None):
    env = dict(os.environ, KILN_LAUNCHER_TEST=WORK)
    for name in ("args", "env", "started"):
        if os.path.exists(os.path.join(WORK, name)):
            os.remove(os.path.join(WORK, name))
    if mpirun:
        path = os.path.join(WORK, "mpirun")
        with open(path, "w") as file:
            file.write(mpirun)
        os.chmod(path, 0o755)
        env["PATH"] = WORK + ":" + env["PATH"]
    return env


def start(args, mpirun=None, **more):
    return subprocess.Popen([KILN, *args], env={**environment(mpirun), **more}, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process, seconds):
    """Status and stderr; a process that does not end in time is killed, and its status is None."""
    try:
        _, errors = process.communicate(timeout=seconds)
        return process.returncode, errors
    except subprocess.TimeoutExpired:
        process.kill()
        end_ours()
        return None, process.communicate()[1]


def run(args, mpirun=None, seconds=60, **more):
    return finish(start(args, mpirun, **more), seconds)


def ours():
    """Processes that carry this test's mark, but for this one and its launchers: (pid, environ)."""
    found = []
    for folder in glob.glob("/proc/[0-9]*"):
        try:
            with open(folder + "/environ") as file:
                env = file.read().split("\0")
            with open(folder + "/stat") as file:
                state = file.read().rpartition(") ")[2][0]
        except (OSError, UnicodeDecodeError):
            continue
        if MARK in env and state != "Z":
            found.append((int(folder[6:]), dict(e.partition("=")[::2] for e in env if e)))
    return found


def end_ours():
    for pid, _ in ours():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def nothing_left(what):
    for _ in range(20):
        if not ours():
            return
        time.sleep(0.05)
    check(what, False, f"still running: {[pid for pid, _ in ours()]}")
    end_ours()


def wait_for(condition, seconds=30):
    until = time.time() + seconds
    while time.time() < until:
        if found := condition():
            return found
        time.sleep(0.05)
    return condition()


def ranks():
    """The two ranks, by number, once both are in their first collective or past it."""
    found = {int(env["OMPI_COMM_WORLD_RANK"]): pid for pid, env in ours() if "OMPI_COMM_WORLD_RANK" in env}
    return found if len(found) == 2 else {}


def refusals():
    for args, option in [(["run", "--nproc", "1000", "--", "doctor", "--collectives"], "--nproc"),
                         (["run", "--nproc", "1000", "--transport", "threads", "--", "doctor", "--collectives"], "--nproc")]:
        status, errors = run(args, NOTES, seconds=20)
        check(f"{args}: refused", status == 2, (status, errors))
        check(f"{args}: what was expected", re.search(rf"^kiln: {option} is 1000; expected at most \d+ ranks", errors, re.M),
              errors)
        check(f"{args}: --oversubscribe is named", "hint: --oversubscribe" in errors, errors)
        check(f"{args}: nothing was started", not written("args"), written("args"))
    # Ranks that are threads, on one core, of which four take no more.
    one_core = lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    small = ["--size", "nano", "--batch-per-rank", "1", "--context", "8", "--out", WORK]
    for args in [["train", "--ranks", "5", "--strategy", "fsdp", "--transport", "threads", "--size", "nano", "--steps", "1", "--batch", "5", "--out", WORK],
                 ["bench", "ddp", "--ranks", "5", "--size", "nano", "--batch", "5", "--context", "8", "--out", WORK],
                 ["bench", "fsdp", "--ranks", "5", "--size", "nano", "--batch", "5", "--context", "8", "--out", WORK],
                 ["bench", "zero", "--ranks", "5", *small],
                 ["bench", "allreduce", "--ranks", "5", "--transport", "threads", "--bytes", "1KB", "--out", WORK]]:
        process = subprocess.Popen([KILN, *args], env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True, preexec_fn=one_core)
        status, errors = finish(process, 60)
        check(f"{args[:3]} on one core: refused", status == 2 and "--ranks is 5; expected at most 4 ranks on 1 core" in errors,
              (status, errors))


def what_mpirun_is_told():
    nothing = ["doctor", "--collectives"]
    run(["run", "--nproc", "2", "--", *nothing], NOTES)
    args, env = written("args").splitlines(), written("env").splitlines()
    token = [e.partition("=")[2] for e in env if e.startswith("KILN_JOB=")]
    check("the job has a token", len(token) == 1 and len(token[0]) == 32, token)
    check("the token is on no command line", token and not any(token[0] in a for a in args), args)
    check("ranks are given it", "KILN_JOB" in args and args[args.index("KILN_JOB") - 1] == "-x", args)
    pairs = list(zip(args, args[1:]))
    cores = len(os.sched_getaffinity(0))
    check("ranks with a core each may spin", cores < 2 or ("mpi_yield_when_idle", "1") not in pairs, args)
    run(["run", "--nproc", str(4 * cores), "--", *nothing], NOTES)
    args = written("args").splitlines()
    check("ranks that share cores yield", ("mpi_yield_when_idle", "1") in zip(args, args[1:]), args)
    run(["run", "--nproc", str(4 * cores + 1), "--oversubscribe", "--", *nothing], NOTES)
    check("--oversubscribe starts more", str(4 * cores + 1) in written("args").splitlines(), written("args"))


def transports():
    train = ["train", "--size", "nano", "--steps", "1", "--batch", "2", "--context", "8", "--sample-tokens", "0",
             "--strategy", "fsdp"]
    status, errors = run(["run", "--nproc", "2", "--", *train, "--transport", "nccl", "--device", "cpu", "--out", WORK + "/n"], NOTES)
    if status == 0:  # there is NCCL and a GPU
        check("the ranks of a command with --transport nccl", "KILN_TRANSPORT=nccl" in written("env").splitlines())
    else:
        check("--transport nccl behind the dashes", status == 3 and ("NCCL" in errors or "GPU" in errors), (status, errors))
    status, errors = run(["run", "--nproc", "2", "--", *train, "--transport", "threads", "--out", WORK + "/t"], NOTES)
    check("--transport threads behind the dashes", status == 0 and not written("args"), (status, errors))
    status, errors = run(["run", "--nproc", "2", "--transport", "mpi", "--", *train, "--transport", "threads"], NOTES)
    check("two transports", status == 2 and "--transport is mpi before `--` and threads after it" in errors, (status, errors))


def folders():
    return set(glob.glob("/dev/shm/kiln-run-*"))


def stuck_starts():
    hello = ["--", "doctor", "--collectives"]
    begun = time.time()
    status, errors = run(["run", "--nproc", "2", "--comm-timeout", "0.5", *hello], STUCK, seconds=20)
    check("the time-out of a stuck start", status == 1 and time.time() - begun < 7, (status, time.time() - begun, errors))
    check("a stuck start is told", "rank 0, rank 1 did not come to the start of the run within 0.5 s" in errors, errors)
    nothing_left("the time-out of a stuck start")
    process = start(["run", "--nproc", "2", *hello], STUCK)
    wait_for(lambda: os.path.exists(WORK + "/started"))
    begun = time.time()
    process.send_signal(signal.SIGTERM)
    status, errors = finish(process, 20)
    check("a signal in a stuck start", status == 1 and time.time() - begun < 6, (status, time.time() - begun, errors))
    nothing_left("a signal in a stuck start")


def stopped_ranks(args):
    """Two ranks of MPI that can do nothing any more."""
    process = start(["run", "--nproc", "2", *args, "--", "doctor", "--collectives"], KILN_COLLECTIVES_REPEAT="100000")
    found = wait_for(ranks)
    time.sleep(1)
    for pid in found.values():
        os.kill(pid, signal.SIGSTOP)
    return process


def listeners(pids):
    """(pid, address) of each socket that listens, of these processes."""
    inodes = {}
    for pid in pids:
        for link in glob.glob(f"/proc/{pid}/fd/*"):
            try:
                to = os.readlink(link)
            except OSError:
                continue
            if to.startswith("socket:["):
                inodes[to[8:-1]] = pid
    found = []
    for name in ("tcp", "tcp6"):
        with open("/proc/net/" + name) as file:
            for line in file.read().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A" and words[9] in inodes:
                    address = words[1].partition(":")[0]
                    found.append((inodes[words[9]],
                                  socket.inet_ntoa(struct.pack("<I", int(address, 16))) if name == "tcp" else address))
    return found


def left_files(pids):
    """Files in shared memory and in /tmp that these processes have open or mapped, and the launch's folders."""
    found = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/maps") as file:
                found |= {line.split()[5] for line in file if len(line.split()) == 6}
            found |= {os.readlink(f) for f in glob.glob(f"/proc/{pid}/fd/*")}
        except OSError:
            pass
    return {f for f in found if f.startswith(("/dev/shm/", "/tmp/")) and not f.startswith((WORK, KILN))}


def real_ranks():
    before = folders()
    process = stopped_ranks([])
    everyone = ours()
    rank_pids = set(ranks().values())
    token = next((env["KILN_JOB"] for _, env in everyone if "OMPI_COMM_WORLD_RANK" in env), "")
    check("a real job has a token", len(token) == 32, token)
    for pid, _ in everyone:
        with open(f"/proc/{pid}/cmdline") as file:
            check("the token is on no real command line", token and token not in file.read(), pid)
    for pid, address in listeners(rank_pids):
        check("ranks listen on loopback only", address == "127.0.0.1", address)
    files = left_files([pid for pid, _ in everyone])
    check("the launch's files were found", any("kiln-run-" in f for f in files), files)
    process.send_signal(signal.SIGTERM)
    time.sleep(1)
    check("the first signal waits for ranks", process.poll() is None)
    begun = time.time()
    process.send_signal(signal.SIGTERM)
    status, errors = finish(process, 20)
    check("the second signal", status == -signal.SIGTERM and time.time() - begun < 5, (status, time.time() - begun, errors))
    nothing_left("the second signal")
    check("what a killed run leaves", not (folders() - before) and not any(map(os.path.exists, files)),
          [f for f in files if os.path.exists(f)])

    process = stopped_ranks(["--grace", "0.5"])
    process.send_signal(signal.SIGINT)
    begun = time.time()
    status, errors = finish(process, 20)
    check("--grace", status == 1 and time.time() - begun < 6 and "had not ended 0.5 s after the signal" in errors,
          (status, time.time() - begun, errors))
    nothing_left("--grace")


def ranks_save():
    out = WORK + "/saved"
    process = start(["run", "--nproc", "2", "--", "train", "--size", "nano", "--steps", "100000", "--batch", "4", "--context", "32",
                     "--threads", "1", "--save-every", "0", "--strategy", "fsdp", "--out", out])
    metrics = out + "/metrics.jsonl"
    wait_for(lambda: os.path.exists(metrics) and os.path.getsize(metrics) > 0)
    process.send_signal(signal.SIGTERM)
    status, errors = finish(process, 60)
    check("ranks finish their step", status == 0, (status, errors))
    check("ranks save", glob.glob(out + "/checkpoints/step-*"), os.listdir(out))
    with open(metrics) as file:
        last = json.loads(file.read().splitlines()[-1])["step"]
    check("the step they finished is the one they saved", glob.glob(f"{out}/checkpoints/step-*{last}"), last)
    nothing_left("ranks that saved")


try:
    for part in (refusals, what_mpirun_is_told, transports, stuck_starts, real_ranks, ranks_save):
        begun = time.time()
        part()
        print(f"{part.__name__}: {time.time() - begun:.1f} s")
finally:
    end_ours()
    subprocess.run(["rm", "-rf", WORK], check=False)
sys.exit(1 if failures else 0)
