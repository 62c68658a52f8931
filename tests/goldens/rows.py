"""Rows as every command that stores some wrote them into results.jsonl: read by all that reads stored rows today.
results.jsonl has the rows, rows_read.json the figures that were read from them."""
import json
import re
import shutil

import common

ROWS = "results.jsonl"
FIGURES = "rows_read.json"

CPU = "--device cpu --threads 1"
STEP = f"bench step --batch 2 --ctx 16 --warmup 1 --steps 3 {CPU}"
RANKS = "--ranks 2 --size nano --batch 2 --ctx 16 --steps 2 --warmup 2 --device cpu"
ABLATE = f"ablate --size nano --batch 1 --ctx 16 --steps 2 --warmup 1 --gate-steps 1 {CPU}"

# Each appends to the same file. (kiln residuals, precision, calc, tune and report store no rows.)
COMMANDS = [
    f"bench op add --shape rows=4,cols=8 {CPU}",
    f"bench op rms_norm --shape rows=64,cols=1024 --variant fused {CPU}",
    f"{STEP} --size nano --dtype fp32,bf16 --preset both --mode forward,full",
    f"{STEP} --grid size=nano --grid dtype=fp32",
    "bench warmup --size nano --batch 2 --ctx 8 --warmup 0,2 --steps 3 --device cpu",
    f"bench attention --batch 1 --heads 2 --seq 24 --d 8 --iters 2 {CPU}",
    f"bench attention --batch 1 --seq 512 --d 8 --variant naive,flash --memory 1MiB --iters 2 {CPU}",
    f"bench flash --seq 16 --d 8 --dtype fp32 --iters 2 {CPU}",
    f"bench leaderboard flash --heads 2 --seq 40 --seconds 0.01 --warmup 0 {CPU}",
    "bench allreduce --ranks 2 --size 64KB,1MB,4MB --algorithm direct,ring,alternate --transport threads --samples 5 "
    "--device cpu",
    f"bench ddp {RANKS}",
    f"bench zero {RANKS} --stage 0,1,2,3",
    f"bench fsdp {RANKS}",
    f"{ABLATE} --only fused_rope,recompute",
    "memory --size nano --ctx 16 --batch 2 --dtype fp32,bf16 --export none --device meta",
    f"memory --size nano --ctx 16 --batch 2 --export none --measure always {CPU}",
    "profile --size nano --ctx 16 --steps 1 --device cpu",
    "study 2025 --scale tiny --only leaderboard-flash --device cpu",
]

# Those of them that look at the rows that are there before they add to them.
APPENDING = [f"{STEP} --grid size=nano", f"bench ddp {RANKS}", f"{ABLATE} --only fused_rope"]


def stored():
    return (common.HERE / ROWS).read_text().splitlines()


def numbers_in(text):
    return [float(n) for n in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w])", text)]


# Of rows that `kiln report` shows: the figure to look for, its unit there, and the keys whose words tell rows apart.
SHOWN = {
    "bench step": ("p50_ms", 1, ["size", "mode", "dtype", "preset"]),
    "ablate": ("p50_ms", 1, ["switch"]),
    "memory": ("predicted_peak_bytes", 2 ** 20, ["size", "phase", "dtype"]),
}


def is_shown(row, page):
    """Is the row's figure, to its first digits, in a line of a table with the row's words?"""
    key, unit, words = SHOWN[row["command"]]
    value = row[key] / unit
    for line in page.splitlines():
        cells = {cell.strip().lstrip("+") for cell in line.split("|")}
        if all(row[word] in cells for word in words) and any(abs(n - value) <= 0.011 * value for n in numbers_in(line)):
            return True
    return False


def report_figures(program, folder, lines):
    """What `kiln report` makes of the rows: how many it read and showed, and which of their figures are on its page."""
    result = program.json("report", "--from", folder, "--out", folder / "page")
    page = (folder / "page" / "report.md").read_text()
    figures = {"rows": result["rows"], "rows_shown": result["rows_shown"], "ablations": result["ablations"],
               "pictures": len(result["files"]) - 1}
    for line in lines:
        row = json.loads(line)
        if row["command"] in SHOWN and row.get(SHOWN[row["command"]][0]):
            name = f"{row['command']} {SHOWN[row['command']][0]}"
            have, of = figures.get(name, "0 of 0").split(" of ")
            figures[name] = f"{int(have) + is_shown(row, page)} of {int(of) + 1}"
    return {f"report: {name}": value for name, value in figures.items()}


def calc_figures(program, folder):
    """The stored rows beside the theory, and the link that is fitted to them."""
    figures = {}
    page = program.json("calc", "ring", "--size", "64KB,1MB,4MB", "--ranks", 2, "--out", folder)
    for row in page["rows"]:
        figures[f"calc ring: {row['collective']} {row['bytes']:.0f}"] = row.get("achieved_ms")
    figures["calc ring: latency_us"] = page["links"][0]["latency_us"]
    figures["calc ring: gb_per_s"] = page["links"][0]["gb_per_s"]
    page = program.json("calc", "bucket", "--size", "nano", "--ranks", 2, "--out", folder)
    for n, row in enumerate(page["rows"]):
        figures[f"calc bucket: row {n}"] = {key: value for key, value in row.items() if isinstance(value, (int, float))}
    page = program.json("calc", "fsdp-savings", "--size", "nano", "--ranks", 2, "--batch-per-rank", 2, "--ctx", 16, "--out",
                        folder)
    for row in page["rows"]:
        name = f"calc fsdp-savings: stage {row['stage']}"
        figures[f"{name} state_bytes"] = row.get("state_bytes")
        figures[f"{name} peak_bytes"] = row.get("peak_bytes")
    return figures


def train_figures(program, folder):
    """--bucket-mb auto takes the link of the rows beside the run."""
    said = program.run("train", "--model", common.MODEL, "--text", common.TEXT, "--tokenizer", "byte", "--steps", 1,
                       "--batch", 2, "--context", 8, "--held-out", 0, "--sample-tokens", 0, "--ranks", 2, "--strategy",
                       "ddp:bucketed", "--bucket-mb", "auto", "--transport", "threads", "--device", "cpu", "--out",
                       folder / "run").stderr
    found = re.search(r"([\d.e+-]+) MB: ", said)
    return {"train --bucket-mb auto: MB": float(found.group(1)) if found else said.strip()[-300:]}


def figures_of(program, folder, lines):
    return {**report_figures(program, folder, lines), **calc_figures(program, folder), **train_figures(program, folder)}


def make(program):
    with common.TempFolder() as folder:
        for words in COMMANDS:  # rows may name files, and not where this folder happened to be
            program.run(*words.split(), "--out", "runs", cwd=folder)
        text = (folder / "runs" / ROWS).read_text()
        (common.HERE / ROWS).write_text(text)
        figures = figures_of(program, folder / "runs", text.splitlines())
    common.write_json(FIGURES, figures)
    commands = sorted({json.loads(line)["command"] for line in stored()})
    return f"{len(stored())} rows of {len(commands)} commands: {', '.join(commands)}"


MORE = ["report: rows_shown", "report: pictures"]  # a later report may show rows that this one left out


def same(now, golden):
    if isinstance(golden, dict):
        return isinstance(now, dict) and all(same(now.get(key), value) for key, value in golden.items())
    if isinstance(golden, float) and isinstance(now, (int, float)):
        return abs(now - golden) <= 1e-9 * abs(golden)
    return now == golden


def check(program, report):
    lines, golden = stored(), common.read_json(FIGURES)
    report.equal("report: rows", golden["report: rows"], len(lines))
    with common.TempFolder() as folder:
        shutil.copyfile(common.HERE / ROWS, folder / ROWS)
        now = figures_of(program, folder, lines)
        for name, value in golden.items():
            right = now.get(name, 0) >= value if name in MORE else same(now.get(name), value)
            report.expect(right, f"{name}: {now.get(name)!r}, the golden is {value!r}")
        # Benches that look at what is there before they measure: a sweep, an ablation, the link of bench ddp.
        for words in APPENDING:
            said = program.run(*words.split(), "--out", folder).stderr
            report.expect("left out" not in said, f"kiln {words}: {said.strip()[-300:]}")
        after = (folder / ROWS).read_text().splitlines()
        report.expect(after[:len(lines)] == lines, "old rows are not as they were")
        report.expect(len(after) > len(lines), "no rows were added to the old ones")
