"""Predicted peaks of a step, whole and by tag, to the byte: every size that can be built, in fp32 and bf16, unfused and
fused, forward and the whole step, as the CPU and as a GPU would hold it. meta_peaks.json has them."""
import json

import common

GOLDENS = "meta_peaks.json"
DEVICES = ["meta", "meta:cuda"]
PRESETS = ["baseline", "optimized"]
SIZES = ["nano", "micro", "tiny", "small", "medium", "large", "xl25", "xl26", "2.7b", "10b", "leaderboard8b"]
WORDS = ["--size", ",".join(SIZES), "--batch", 4, "--ctx", 512, "--dtype", "fp32,bf16", "--phase", "forward,full",
         "--measure", "never", "--export", "none", "--threads", 2]


def peaks(program):
    """"meta baseline nano fp32 forward" to the bytes of the peak and, in the same order always, of each tag in it."""
    table = {}
    with common.TempFolder() as folder:
        for device in DEVICES:
            for preset in PRESETS:
                page = program.json("memory", *WORDS, "--preset", preset, "--device", device, "--out", folder)
                for row in page["rows"]:
                    name = f"{device} {preset} {row['size']} {row['dtype']} {row['phase']}"
                    tags = {tag: n for tag, n in row["predicted_peak_by_tag"].items() if n}
                    table[name] = {"total": row["predicted_peak_bytes"], **tags}
    return table


def make(program):
    table = peaks(program)
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in table.items())
    (common.HERE / GOLDENS).write_text("{\n" + lines + "\n}\n")
    return f"{len(table)} peaks"


def check(program, report):
    golden, now = common.read_json(GOLDENS), peaks(program)
    report.equal("the cells", sorted(now), sorted(golden))
    for name, row in golden.items():
        if name in now:
            report.equal(name, now[name], row)
