"""Weights after 20 steps, by their hashes: for each precision on one rank, each strategy on two, and the options that
change how a step is computed. weight_hashes.json has them."""
import common

GOLDENS = "weight_hashes.json"

STEPS = 20
SHAPE = ["--model", common.MODEL, "--text", common.TEXT, "--tokenizer", "byte", "--steps", STEPS, "--batch", 4,
         "--context", 16, "--lr", "3e-3", "--held-out", 0, "--sample-tokens", 0, "--save-every", 0, "--threads", 1,
         "--seed", 5, "--device", "cpu"]
RANKS = ["--ranks", 2, "--transport", "threads"]

STRATEGIES = ["ddp:naive", "ddp:flat", "ddp:overlap", "ddp:bucketed", "zero1:simple", "zero1", "zero2", "fsdp"]

# Name to the options that a run has besides SHAPE.
RUNS = {
    "default": [],
    **{f"precision {p}": ["--precision", p] for p in ["fp32", "bf16", "autocast", "pure-bf16", "fp16"]},
    "strategy none": ["--strategy", "none"],
    **{f"strategy {s}": [*RANKS, "--strategy", s] for s in STRATEGIES},
    "strategy fsdp bf16": [*RANKS, "--strategy", "fsdp", "--precision", "bf16"],
    "strategy zero2 small buckets": [*RANKS, "--strategy", "zero2", "--bucket-mb", "0.002"],
    "strategy ddp:bucketed wire bf16": [*RANKS, "--strategy", "ddp:bucketed", "--wire", "bf16"],
    "tp 2": [*RANKS, "--tp", 2],
    "recompute block": ["--recompute", "block"],
    "recompute every:2": ["--recompute", "every:2"],
    "recompute nested": ["--recompute", "nested"],
    "preset baseline": ["--preset", "baseline"],
    "canonical": ["--canonical"],
    "canonical zero1 2 ranks": [*RANKS, "--strategy", "zero1", "--canonical", "--chunks", 4],
    "accumulate 2": ["--accumulate", 2],
    "tied": ["--tied"],
    "no clip": ["--clip", 0],
}

# Compiled without vector instructions: every x86-64 has it, and it is the definition of the others.
PLAIN = {"default, plain kernels": [], "bf16, plain kernels": ["--precision", "bf16"]}


def hash_of(program, folder, name, words, isa=None):
    run = folder / name.replace(" ", "-").replace(":", "-").replace(",", "")
    program.run("train", *SHAPE, *words, "--out", run, isa=isa)
    checkpoint = common.newest_checkpoint(run)
    if checkpoint.name != f"step-{STEPS:08d}":
        raise AssertionError(f"{name}: ended at {checkpoint.name}")
    return common.tensor_hash(checkpoint / "model.safetensors")


def every_run():
    for name, words in RUNS.items():
        yield name, words, common.ISA
    for name, words in PLAIN.items():
        yield name, words, "plain"


def make(program):
    with common.TempFolder() as folder:
        page = {name: hash_of(program, folder, name, words, isa) for name, words, isa in every_run()}
    common.write_json(GOLDENS, {"isa": common.ISA, "steps": STEPS, "weights_sha256": page})
    return f"{len(page)} hashes, {len(set(page.values()))} different"


def check(program, report):
    golden = common.read_json(GOLDENS)["weights_sha256"]
    report.equal("the runs", [name for name, _, _ in every_run()], list(golden))
    with common.TempFolder() as folder:
        for name, words, isa in every_run():
            try:
                report.equal(name, hash_of(program, folder, name, words, isa), golden.get(name))
            except AssertionError as error:
                report.expect(False, f"{name}: {error}")
