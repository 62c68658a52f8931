#!/usr/bin/env python3
"""usage: json_documents.py KILN
Every command that prints a result prints one JSON document with --json, and the document names its command: who keeps
many of them can tell them apart. The commands are those that the program itself lists, so a new one is missed here
until it has a line below."""
import json
import os
import re
import subprocess
import sys
import tempfile

# The cheapest run of each. {out} is an empty folder, {text} a text, {model} a model made by
# convert, {run} the folder of a run.
SMALL = "--device cpu --threads 1 --out {out}"
RUNS = {
    "doctor": "--quick",
    "ops": "add",
    "sizes": "nano",
    "train": f"--text {{text}} --size nano --steps 1 --batch 1 --ctx 16 {SMALL}",
    "watch": "{run}",
    "sample": "--checkpoint {model} --tokenizer byte --prompt a --tokens 2 --threads 1",
    "eval": "--checkpoint {model} --tokenizer byte --text {text} --batches 1 --ctx 16 --threads 1",
    "bench op": f"add --shape rows=2,cols=2 {SMALL}",
    "bench step": f"--size nano --ctx 8 --steps 2 {SMALL}",
    "bench warmup": f"--size nano --ctx 8 --warmup 1 --steps 2 {SMALL}",
    "bench attention": f"--seq 16 --d 8 --batch 1 --iters 1 {SMALL}",
    "bench flash": "--table steps --device meta:cuda --out {out}",
    "bench allreduce": "--ranks 2 --bytes 1KB --transport threads --samples 3 --out {out}",
    "bench ddp": f"--size nano --ranks 2 --batch 2 --ctx 8 --steps 1 --form naive {SMALL}",
    "bench zero": "--size nano --ranks 2 --stage 1 --ctx 8 --measure off --out {out}",
    "bench fsdp": f"--size nano --ranks 2 --batch 2 --ctx 8 --steps 1 --prefetch 0 {SMALL}",
    "bench leaderboard flash": f"--heads 2 --seq 16 --seconds 0.01 --warmup 0 {SMALL}",
    "all": "--list --device cpu",
    "study": "2025 --list --device cpu",
    "profile": f"--size nano --ctx 8 --steps 1 {SMALL}",
    "memory": "--size nano --ctx 8 --measure never --out {out}",
    "memory scaling": "--size nano --ctx 8,16 --device meta --out {out}",
    "memory recompute-sweep": "--size nano --ctx 8 --device meta --out {out}",
    "fit": "--size nano --memory 64MiB --ctx 64 --device cpu --threads 1 --out {out}",
    "residuals": "--op rms_norm --shape 2,4,8 --out {out}",
    "precision accumulate": "--count 10",
    "precision toymodel": "",
    "precision layernorm": "--width 8 --rows 2",
    "precision accumulation": "--tokens 65 --ranks 2 --steps 2 --width 9",
    "ablate": f"--size nano --batch 1 --ctx 8 --steps 2 --warmup 1 --gate-steps 1 --only prefetch {SMALL}",
    "ablate quality": f"--size nano --batch 1 --ctx 8 --steps 4 --only prefetch --tolerance 1 {SMALL}",
    "report": "--out {out}",
    "run": "--nproc 2 -- doctor --collectives",
    "plan": "--size nano --devices 4 --ctx 8 --hw h100",
    "calc flops": "--size nano --batch 1 --ctx 8",
    "calc memory": "--size nano --batch 1 --ctx 8",
    "calc time": "--size nano --batch 1 --ctx 8 --hw h100",
    "calc checkpoint": "--size nano --batch 1 --ctx 8",
    "calc residual-stream": "",
    "calc dp": "",
    "calc fsdp": "",
    "calc tp": "",
    "calc 2d": "",
    "calc xxl": "",
    "calc ring": "--link latency=50us,bandwidth=1GB/s --out {out}",
    "calc bucket": "--s 512MB --w 10GB/s --o 20us",
    "calc fsdp-savings": "--size nano --ranks 2 --out {out}",
    "measure": f"--size nano --batch 1 --ctx 8 --steps 2 {SMALL}",
    "compare": f"--size nano --batch 1 --ctx 8 --steps 2 {SMALL}",
    "diff": f"batch=1 batch=2 --size nano --ctx 8 --steps 2 {SMALL}",
    "tune attention": "--device meta:cuda --out {out}",
    "compile": "--show block --size nano --batch 1 --ctx 8 --no-measure --device cpu --threads 1",
    "tokenize": "--text {text} --out {out}/tokens",
    "convert": "--size nano --to {out}/model",
}
# A document of its own only where there is a GPU.
NEEDS_GPU = {"tune"}
NAMED = {"run": "doctor --collectives"}  # of the command that is run


def help_of(kiln, command):
    return subprocess.run([kiln, *command, "--help"], capture_output=True, text=True, check=True).stdout


def listed(text, title):
    part = re.search(rf"^{title}:\n((?:  .*\n|\n(?=  ))*)", text, re.M | re.I)
    return re.findall(r"^  ([a-z0-9][a-z0-9-]*) ", part.group(1), re.M) if part else []


def all_commands(kiln):
    found = []

    def walk(command):
        subs = listed(help_of(kiln, command), "Subcommands")
        if command and (not subs or " ".join(command) in RUNS or " ".join(command) in NEEDS_GPU):
            found.append(" ".join(command))
        for sub in subs:
            walk([*command, sub])

    for name in listed(subprocess.run([kiln, "--help"], capture_output=True, text=True, check=True).stdout, "Commands"):
        walk([name])
    return found


def main():
    kiln = sys.argv[1]
    problems = []
    with tempfile.TemporaryDirectory() as work:
        text, model = os.path.join(work, "text.txt"), os.path.join(work, "model")
        with open(text, "w") as f:
            f.write("".join(f"a text of many lines, this is number {i}\n" for i in range(200)))
        folder = os.path.join(work, "run")
        os.mkdir(folder)
        with open(os.path.join(folder, "metrics.jsonl"), "w") as f:
            f.write('{"step":1,"loss":6.5,"seconds":0.01,"tokens":512}\n')
        subprocess.run([kiln, "convert", "--size", "nano", "--to", model], check=True, capture_output=True)
        commands = all_commands(kiln)
        if len(commands) < 30:
            problems.append(f"only {len(commands)} commands were found: {commands}")
        for command in commands:
            if command in NEEDS_GPU:
                continue
            if command not in RUNS:
                problems.append(f"kiln {command}: has no line in json_documents.py")
                continue
            # report has rows to report: those of bench step
            out = os.path.join(work, "bench-step" if command == "report" else command.replace(" ", "-"))
            args = RUNS[command].format(out=out, text=text, model=model, run=folder).split()
            before = args.index("--") if "--" in args else len(args)
            typed = [*command.split(), *args[:before], "--json", *args[before:]]
            ran = subprocess.run([kiln, *typed], capture_output=True, text=True)
            shown = "kiln " + " ".join(typed)
            if ran.returncode != 0:
                problems.append(f"{shown}: exit {ran.returncode}: {ran.stderr.strip()[-300:]}")
                continue
            try:
                document = json.loads(ran.stdout)
            except ValueError as error:
                problems.append(f"{shown}: not one JSON document: {error}")
                continue
            named = document.get("command") if isinstance(document, dict) else None
            if named != NAMED.get(command, command):
                problems.append(f"{shown}: \"command\" is {named!r}")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())
