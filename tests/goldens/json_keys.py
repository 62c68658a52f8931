"""The keys of the JSON document of every command. json_keys.txt has, for one cheap start of each, the path of every key,
items of arrays as []; each must still be there, under its own name or that of RENAMED. New ones may come. Of every
document, and of every row that was stored on the way, the words of `command`, `status` and `gate` are looked at, too."""
import re
import shutil

import common

GOLDENS = "json_keys.txt"

# Keys that are names of ops, and an op has another name since: today's counts.
RENAMED = {"ops.judge_step": "ops.finish_step_scalars"}

CPU = "--device cpu --threads 1"
RANKS = "--ranks 2 --size nano --batch 2 --ctx 16 --steps 2 --warmup 2 --device cpu"
TRAIN = ("train --model model.json --text text.txt --tokenizer byte --steps 3 --batch 2 --context 16 --sample-tokens 4 "
         f"{CPU}")

# In this order, in one folder, which holds model.json, text.txt, and in rows/ the stored rows: what is fitted to fresh
# ones may be there or not. --out is runs where none is given.
COMMANDS = [
    "doctor --quick",
    "ops linear rms_norm --device cpu",
    "sizes",
    f"{TRAIN} --out run",
    f"{TRAIN} --ranks 2 --strategy zero2 --out run2",
    "sample --checkpoint run --prompt The --tokens 4 --device cpu",
    "eval --checkpoint run --text text.txt --device cpu",
    f"bench op add --shape rows=4,cols=8 {CPU}",
    f"bench op linear --shape in=8,out=8 --grid rows=2,4 {CPU}",
    f"bench step --size nano --batch 2 --ctx 16 --warmup 1 --steps 3 --dtype fp32,bf16 --preset both --split {CPU}",
    "bench warmup --size nano --batch 2 --ctx 8 --warmup 1 --steps 3 --device cpu",
    f"bench attention --batch 1 --heads 2 --seq 16,32 --d 8 --iters 2 {CPU}",
    f"bench flash --seq 16 --d 8 --dtype fp32 --iters 2 {CPU}",
    f"bench leaderboard flash --heads 2 --seq 40 --seconds 0.01 --warmup 0 {CPU}",
    "bench allreduce --ranks 2 --size 64KB,1MB,16MB --algorithm direct,ring,alternate --transport threads --samples 5 "
    "--device cpu",
    f"bench ddp {RANKS}",
    f"bench zero {RANKS}",
    f"bench fsdp {RANKS}",
    "study 2025 --list --device cpu",
    "study 2025 --scale tiny --only precision-layernorm --device cpu --out studied",
    f"profile --size nano --ctx 16 --steps 1 {CPU}",
    "memory --size nano --ctx 16 --dtype fp32,bf16 --export none --device meta",
    "memory --size nano --ctx 16 --export none --measure always --device cpu",
    "memory scaling --size nano --ctx 16..64 --export none --device meta",
    "memory recompute-sweep --size nano --ctx 16 --steps 1 --device cpu",
    "residuals --op rms_norm --shape 4,16,64 --device cpu",
    "residuals --block --size nano --batch 1 --ctx 16 --device cpu",
    "precision accumulate --count 100 --runs 2",
    "precision toymodel",
    "precision layernorm --width 33 --rows 2",
    "precision accumulation --tokens 65 --ranks 3 --steps 20 --width 99",
    f"ablate --size nano --batch 1 --ctx 16 --steps 2 --warmup 1 --gate-steps 1 --only fused_rope {CPU}",
    "report --from rows",
    "run --nproc 2 --transport threads -- doctor --collectives",
    "calc ring --size 1MB --ranks 2 --out rows",
    "calc ring --size 1MB --ranks 2,4 --link latency=5us,bandwidth=50GB/s",
    "calc bucket --s 512MB --w 10GB/s --o 20us",
    "calc bucket --size nano --ranks 2 --out rows",
    "calc fsdp-savings --size nano --ranks 2",
    "calc fsdp-savings --size nano --ranks 2 --batch-per-rank 2 --ctx 16 --out rows",
    "tune attention --seq 300 --d 80 --dtype fp16 --variant flash --device meta:cuda",
    "tokenize --text text.txt --train-bpe 260 --out tokens",
    "convert --random nano --to nano",
    "convert --from run --to half --dtype bf16",
]


def key_paths(page, prefix=""):
    """"rows[].gate" and its like; of an array the keys of all items."""
    if isinstance(page, dict):
        for key, value in page.items():
            path = f"{prefix}.{key}" if prefix else key
            yield path
            yield from key_paths(value, path)
    elif isinstance(page, list):
        for value in page:
            yield from key_paths(value, f"{prefix}[]")


STATUS = {"ok", "failed", "oom", "unsupported", "unavailable", "timeout", "interrupted", "skipped", "modelled"}
GATES = {"passed", "failed", "not-verified"}
# Lists of a document whose items are rows, as stored ones are.
ROWS = {"rows", "not_timed", "not_traced", "steps", "variants", "blocks", "points", "not_here", "runs"}
# Lists of the same names whose items are something else.
NO_ROWS = {"tune attention"}
SCHEMA = 2


def outcome_problems(value, where):
    """Words that are no status and no gate, wherever they stand."""
    if isinstance(value, dict):
        for key, words in (("status", STATUS), ("gate", GATES)):
            if isinstance(value.get(key), str) and value[key] not in words:
                yield f"{where}: {key} is '{value[key]}'"
        if value.get("status") in ("failed", "oom", "unsupported", "unavailable", "timeout") and not value.get("reason"):
            yield f"{where}: status is '{value['status']}', without a reason"
        if value.get("gate") == "passed" and value.get("status") != "ok":
            yield f"{where}: gate is 'passed' of a row whose status is '{value.get('status')}'"
        for key, item in value.items():
            yield from outcome_problems(item, f"{where}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from outcome_problems(item, f"{where}[]")


def document_problems(command, page):
    """What is wrong with the command, the rows' status and the rows' gate of a document."""
    named = page.get("command", "none")
    if not re.sub(r"^run .*-- ", "", command).startswith(named):
        yield f"command is '{named}'"
    for key in ROWS & page.keys():
        for row in page[key] if isinstance(page[key], list) and named not in NO_ROWS else []:
            if not {"status", "gate"} <= row.keys():
                yield f"{key}[] has no status and gate"
                break
    yield from outcome_problems(page, "document")


def stored_problems(row):
    for key in ("command", "status", "gate"):
        if not isinstance(row.get(key), str):
            yield f"a stored row of {row.get('command')} has no {key}"
    if row.get("schema") != SCHEMA:
        yield f"a stored row of {row.get('command')} has schema {row.get('schema')}"
    yield from outcome_problems(row, f"a stored row of {row.get('command')}")


def documents(program, problems=None):
    """Every command with the key paths of its document; what is wrong with the words in them goes to `problems`."""
    problems = [] if problems is None else problems
    with common.TempFolder() as folder:
        for file in (common.MODEL, common.TEXT):
            shutil.copy(file, folder)
        (folder / "rows").mkdir()
        shutil.copy(common.HERE / "results.jsonl", folder / "rows")
        for command in COMMANDS:
            words = command.split()
            at = words.index("--") if "--" in words else len(words)
            done = program.run(*words[:at], "--json", *words[at:], cwd=folder, status=None)
            try:
                if done.returncode != 0:
                    raise ValueError(f"exit {done.returncode}: {done.stderr.strip()[-300:]}")
                page = common.json.loads(done.stdout)
            except ValueError as error:
                yield command, None, str(error)
                continue
            problems += [f"kiln {command} --json: {text}" for text in document_problems(command, page)]
            yield command, sorted(set(key_paths(page))), ""
        for file in (folder / "runs", folder / "rows"):
            for line in (file / "results.jsonl").read_text().splitlines():
                row = common.json.loads(line)
                if file.name == "runs" or "schema" in row:
                    problems += stored_problems(row)


def make(program):
    lines = []
    for command, paths, why in documents(program):
        if paths is None:
            raise AssertionError(f"kiln {command} --json: {why}")
        lines += [f"kiln {command}", *(f"  {path}" for path in paths)]
    (common.HERE / GOLDENS).write_text("\n".join(lines) + "\n")
    return f"{len(COMMANDS)} documents, {len(lines) - len(COMMANDS)} keys"


def golden_paths():
    table = {}
    for line in (common.HERE / GOLDENS).read_text().splitlines():
        if line.startswith("  "):
            table[command].append(line.strip())
        else:
            command = line.removeprefix("kiln ")
            table[command] = []
    return table


def check(program, report):
    golden = golden_paths()
    report.equal("the commands", COMMANDS, list(golden))
    problems = []
    for command, paths, why in documents(program, problems):
        if not report.expect(paths is not None, f"kiln {command} --json: {why}"):
            continue
        for path in golden.get(command, []):
            now = path
            for before, today in RENAMED.items():
                now = re.sub(rf"(^|[.\]]){re.escape(before)}($|[.\[])", rf"\g<1>{today}\g<2>", now)
            report.expect(path in paths or now in paths, f"kiln {command} --json: there is no {path} any more")
    for problem in sorted(set(problems)):
        report.expect(False, problem)
