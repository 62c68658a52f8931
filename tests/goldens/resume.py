"""Two runs that were stopped on the way, as the program left them: one rank, and two ranks under ZeRO-2. Resumed, they
must end in the bytes of the same run that never stopped. runs/ has the folders, runs/finals.json the hashes."""
import json
import os
import shutil
import signal
import subprocess
import time

import common

FOLDER = common.HERE / "runs"
FINALS = "runs/finals.json"
STEPS = 20
STOP_AT = 12
FILES = ["model.safetensors", "optimizer.safetensors"]

# --sample-every: at that step the run is busy with a text long enough for the signal to find it there.
OPTIONS = ["--model", "model.json", "--text", "text.txt", "--tokenizer", "byte", "--steps", STEPS, "--batch", 4,
           "--context", 16, "--lr", "3e-3", "--save-every", 0, "--eval-every", 10, "--eval-batches", 1,
           "--sample-every", STOP_AT, "--sample-tokens", 2000, "--threads", 1, "--seed", 5, "--device", "cpu"]
RUNS = {
    "adamw": [],
    "zero2": ["--ranks", 2, "--transport", "threads", "--strategy", "zero2"],
}


def place(folder):
    for file in (common.MODEL, common.TEXT):
        shutil.copy(file, folder)


def words_of(name):
    return ["train", *OPTIONS, *RUNS[name], "--out", name]


def finals_of(run):
    checkpoint = common.newest_checkpoint(run)
    if checkpoint.name != f"step-{STEPS:08d}":
        raise AssertionError(f"{run} ended at {checkpoint.name}")
    return {file: {"sha256": common.sha256((checkpoint / file).read_bytes()),
                   "tensors_sha256": common.tensor_hash(checkpoint / file)} for file in FILES}


def losses_of(run):
    """Step to its loss, as it was logged; a step that was done twice counts the last time."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {str(line["step"]): line["loss"] for line in lines if "loss" in line and line.get("kind") != "eval"}


def stop_on_the_way(program, folder, name):
    run = folder / name
    process = subprocess.Popen([program.path, *map(str, words_of(name))], cwd=folder, env=program.environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    metrics = run / "metrics.jsonl"
    while process.poll() is None:
        if metrics.exists() and metrics.read_text().count('"step":%d,' % STOP_AT):
            process.send_signal(signal.SIGTERM)
            break
        time.sleep(0.0005)
    if process.wait() != 0:
        raise AssertionError(f"{name}: the stopped run ended with {process.returncode}")
    checkpoint = common.newest_checkpoint(run)
    if not STOP_AT <= int(checkpoint.name[5:]) < STEPS:
        raise AssertionError(f"{name}: stopped at {checkpoint.name}, which is no stop on the way")
    return int(checkpoint.name[5:])


def keep_folder(run, to):
    """What tells of the machine goes: the host's name in the lock and in the name of TensorBoard's file."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(run, to, ignore=shutil.ignore_patterns("events.out.*"))
    lock = to / "lock"
    text = lock.read_text()
    holder = {**json.loads(text), "pid": 1, "host": "golden"}
    lock.write_text(json.dumps(holder, separators=(",", ":")).ljust(len(text) - 1) + "\n")


def make(program):
    finals = {}
    with common.TempFolder() as folder:
        place(folder)
        for name in RUNS:
            program.run(*words_of(name), cwd=folder)
            finals[name] = {"files": finals_of(folder / name), "losses": losses_of(folder / name)}
            shutil.rmtree(folder / name)
            finals[name]["stopped_at"] = stop_on_the_way(program, folder, name)
            keep_folder(folder / name, FOLDER / name)
    common.write_json(FINALS, {"isa": common.ISA, "runs": finals})
    return ", ".join(f"{name} stopped at {page['stopped_at']} of {STEPS}" for name, page in finals.items())


def check(program, report):
    golden = common.read_json(FINALS)["runs"]
    for name in RUNS:
        with common.TempFolder() as folder:
            place(folder)
            shutil.copytree(FOLDER / name, folder / name)
            for path in (folder / name).rglob("*"):  # a checkout may be read-only
                os.chmod(path, 0o755 if path.is_dir() else 0o644)
            os.chmod(folder / name, 0o755)
            result = program.json(*words_of(name), cwd=folder)
            report.equal(f"{name}: steps done after the stop", result["steps_now"], STEPS - golden[name]["stopped_at"])
            finals = finals_of(folder / name)
            for file in FILES:
                now, then = finals[file], golden[name]["files"][file]
                if report.equal(f"{name}: tensors of {file}", now["tensors_sha256"], then["tensors_sha256"]):
                    report.equal(f"{name}: {file} has the same tensors, and other bytes around them", now["sha256"],
                                 then["sha256"])
            report.equal(f"{name}: losses", losses_of(folder / name), golden[name]["losses"])
