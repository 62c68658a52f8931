#!/usr/bin/env python3
"""usage: refuses.py KILN_BROKEN [COMMAND...]

Every command that prints a time of kiln's ops refuses to time what is wrong. KILN_BROKEN is kiln with mistakes in its
SwiGLU, its AdamW, its attention and its matmul (broken_*.cpp), each made when the environment asks for it. The
commands are those of the program's own help: one that is new has to be entered here.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

COPY, LAST, BACKWARD, DECAY = "copied gate", "last row of a large size", "backward", "forgotten decay"
MATMUL = "matmul"
LAST_QUERY, ATTENTION_BACKWARD = "last query of a long sequence", "attention backward"

# What a refusal names, where it is not the op that the others are made in.
NAMED = {DECAY: "adamw"}

MODEL = "--size nano --ctx 64 --threads 2".split()
STEP = MODEL + "--batch 4".split()
RANKS = MODEL + "--steps 2 --warmup 2 --ranks 2".split()

# By command: its arguments, what is named in a refusal, and the mistakes that it has to find.
TIMED = {
    "bench op": ("swiglu --variant fused --shape rows=300,cols=40".split(), "swiglu", (COPY, LAST, BACKWARD)),
    "bench step": (STEP + "--precision fp32,bf16 --steps 2 --warmup 1".split(), "swiglu", (COPY, LAST, BACKWARD, DECAY)),
    "bench warmup": (STEP + "--warmup 1 --steps 2".split(), "swiglu", (COPY, LAST, BACKWARD, DECAY)),
    "bench attention": ("--batch 1 --seq 512 --d 16 --iters 2 --causal --variant flash".split(), "attention",
                        (LAST_QUERY, ATTENTION_BACKWARD)),
    "bench flash": ("--batch 1 --seq 512 --d 16 --dtype fp32 --iters 2 --variant flash".split(), "attention",
                    (LAST_QUERY, ATTENTION_BACKWARD)),
    "bench leaderboard": ("flash --heads 1 --seq 512 --d 16 --seconds 0.1 --warmup 0 --variant flash".split(), "attention",
                          (LAST_QUERY, ATTENTION_BACKWARD)),
    "bench ddp": (RANKS + "--batch 8".split(), "swiglu", (COPY, LAST, BACKWARD, DECAY)),
    "bench zero": (RANKS + "--batch-per-rank 4 --stage 0,1".split(), "swiglu", (COPY, LAST, BACKWARD, DECAY)),
    "bench fsdp": (RANKS + "--batch 8".split(), "swiglu", (COPY, LAST, BACKWARD, DECAY)),
    "profile": (STEP + "--steps 2 --warmup 1 --precision fp32".split(), "swiglu", (COPY, LAST, BACKWARD, DECAY)),
    "measure": (STEP + "--precision fp32,bf16 --steps 2".split(), "swiglu", (COPY, LAST, BACKWARD, DECAY)),
    "compare": (STEP + "--steps 2".split(), "swiglu", (COPY, LAST, BACKWARD, DECAY)),
    "diff": (STEP + "precision=fp32 precision=bf16 --steps 2".split(), "swiglu", (COPY, LAST, BACKWARD, DECAY)),
    "plan": (MODEL + "--check --devices 2 --batch 8 --link latency=50us,bandwidth=1GB/s --candidates 2 --rounds 1 "
             "--steps 2".split(), "swiglu", (COPY, LAST, BACKWARD, DECAY)),
    # The models of a calibration are too small for a mistake in the last row of a large size.
    "doctor": ("--calibrate --seconds 1 --threads 2".split(), "swiglu", (COPY, BACKWARD, DECAY)),
    "ablate": (STEP + "--only fused_swiglu --steps 2 --warmup 1 --gate-steps 2".split(), "swiglu",
               (COPY, LAST, BACKWARD)),
}

NOT_TIMED = {
    "bench allreduce": "runs no op; each row checks its own sums (tests/dist/comm_test.cpp)",
    "tune": "GPUs only: on the CPU there is nothing to tune",
    "study": "its parts are the commands above, in processes of their own",
    "run": "starts one of the commands above",
    "fit": "bytes; its seconds are of a model of the machine",
    "all": "its steps are commands of this list, in processes of their own",
    "watch": "what a run wrote: as train",
    "train": "tokens a second of a run are no row of a table",
    "sample": "as train",
    "eval": "as train",
    "memory": "bytes", "residuals": "bytes", "precision": "errors", "ops": "names", "sizes": "numbers of parameters",
    "report": "rows that were stored, those that passed", "calc": "arithmetic, and rows that were stored",
    "compile": "kernels of its own, none of which has these mistakes; checked against their ops first (tests/compile)",
    "tokenize": "text", "convert": "files", "completions": "text", "man": "text",
}


def commands_of(kiln, *above):
    """The names that a help text lists under its commands."""
    text = subprocess.run([kiln, *above, "--help"], capture_output=True, text=True, check=True).stdout
    names, inside = [], False
    for line in text.splitlines():
        if re.match(r"(?i)^(sub)?commands\b", line):
            inside = True
        elif inside and line and not line.startswith(" "):
            inside = False
        elif inside:
            found = re.match(r"^  ([a-z0-9][a-z0-9-]*)\s", line)
            if found:
                names.append(found.group(1))
    return names


def times_in(value, path=""):
    """Rows of a document that have a time."""
    if isinstance(value, dict):
        if any(value.get(key) for key in ("p50_ms", "mean_ms", "steps_ms", "a_ms", "of_roofline")):
            yield path, value
            return
        for key, inner in value.items():
            yield from times_in(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from times_in(inner, f"{path}[{i}]")


def run(kiln, command, arguments, mistake):
    environment = {k: v for k, v in os.environ.items() if k != "KILN_BROKEN"}
    if mistake:
        environment["KILN_BROKEN"] = mistake
    with tempfile.TemporaryDirectory() as out:
        line = [kiln, *command.split(), *arguments, "--device", "cpu", "--out", out, "--json"]
        done = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=300)
        stored = os.path.join(out, "results.jsonl")
        rows = []
        if os.path.exists(stored):
            with open(stored, encoding="utf-8") as file:
                rows = [json.loads(text) for text in file if text.strip()]
    return done, rows


def is_right(row):
    """A row of `ablate` that does not run the broken variant has its times, rightly."""
    return row.get("group") in ("baseline", "again")


def why_wrong(kiln, command):
    arguments, named, mistakes = TIMED[command]
    done, rows = run(kiln, command, arguments, None)
    if done.returncode != 0:
        return f"without a mistake it ends with {done.returncode}: {done.stderr.strip()[-400:]}"
    if not list(times_in(json.loads(done.stdout))):
        return "without a mistake it prints no time, so that nothing is tested here"
    if any(row.get("gate") != "passed" for row in rows if row.get("status") == "ok" and row.get("group") != "baseline"):
        return "without a mistake a row is stored that has not passed its gate"
    for mistake in mistakes:
        done, rows = run(kiln, command, arguments, mistake)
        said = done.stdout + done.stderr
        page = json.loads(done.stdout) if done.stdout.strip() else {}
        timed = [path for path, row in times_in(page) if not is_right(row)]
        stored = [row for row in rows for _ in times_in(row) if not is_right(row)]
        if done.returncode == 0:
            return f"'{mistake}': it ends with 0"
        if timed or stored:
            return f"'{mistake}': it prints times: {timed}, and stores {len(stored)}"
        if NAMED.get(mistake, named) not in said or "allowed" not in said:
            return f"'{mistake}': it does not say what is wrong: {said.strip()[-400:]}"
        if page and not re.search(r'"gate":\s*"failed"', done.stdout):
            return f"'{mistake}': no row has a gate that failed"
    return None


def why_rates_are_wrong(kiln):
    """`kiln doctor` by itself has no rows, but the rates of matmuls."""
    done, _ = run(kiln, "doctor", [], None)
    right = json.loads(done.stdout)
    if set(right["ceilings"]["gemm_gflop_per_s"]) != {"fp32", "bf16"}:
        return f"without a mistake it has the rates {right['ceilings']['gemm_gflop_per_s']}"
    done, _ = run(kiln, "doctor", [], MATMUL)
    wrong = json.loads(done.stdout)
    if "gemm_gflop_per_s" in wrong["ceilings"]:
        return f"'{MATMUL}': it has the rates {wrong['ceilings']['gemm_gflop_per_s']}"
    if not any("matmul" in p["problem"] and "allowed" in p["problem"] for p in wrong["problems"]):
        return f"'{MATMUL}': it does not say what is wrong: {wrong['problems']}"
    return None


def why_unchecked(kiln):
    """`ops --check` times nothing; it has to find what is wrong all the same."""
    for mistake in (None, COPY, BACKWARD):
        done, _ = run(kiln, "ops", ["swiglu", "--check"], mistake)
        failed = [row["variant"] for row in json.loads(done.stdout)["rows"] if row["check"] != "passed"]
        if (done.returncode != 0) != (mistake is not None) or ("fused" in failed) != (mistake is not None):
            return f"'{mistake}': it ends with {done.returncode}, and {failed} failed: {done.stderr.strip()[-400:]}"
    return None


def main():
    kiln = sys.argv[1]
    names = [n for n in commands_of(kiln) if n != "bench"] + [f"bench {n}" for n in commands_of(kiln, "bench")]
    if len(names) < 20:
        sys.exit(f"only these commands were found in the help text: {names}")
    unknown = [n for n in names if n not in TIMED and n not in NOT_TIMED]
    if unknown:
        sys.exit(f"does it print times? Enter it in {os.path.basename(__file__)}: {', '.join(unknown)}")
    wrong = 0
    checks = {command: lambda command=command: why_wrong(kiln, command) for command in TIMED}
    checks["rates of doctor"] = lambda: why_rates_are_wrong(kiln)
    checks["ops --check"] = lambda: why_unchecked(kiln)
    for command in sys.argv[2:] or checks:
        why = checks[command]()
        print(f"{command}: {why or 'refuses'}", flush=True)
        wrong += why is not None
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
