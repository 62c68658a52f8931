"""Every long option of every command with the default its help names, and the values of options that take words of a
list. options.txt has them. Each name and value must still be accepted, whether help shows it or not; where it does, its
default must be the same."""
import re

import common

GOLDENS = "options.txt"
WRONG = "no-such-value"

FORMATS = "table md csv latex json"
PRECISIONS = "fp32 bf16 autocast pure-bf16 fp16"
RECOMPUTE = "none block every:2 nested"
MODES = "forward forward-backward full forward_backward full_step"
DRY = "--dry-run --device cpu"
TRAIN = "train --text /no/such/text --device cpu"
META = "--size nano --ctx 16 --batch 1 --device meta --measure never --export none"
NANO = "--size nano --batch 2 --ctx 16 --steps 1 --warmup 1 --device cpu"

# A command that ends soon, an option, and its words; RUN is a stored run. WRONG in their place must be wrong usage, which
# shows that the command comes to look at them.
VALUES = [
    (TRAIN, "--precision", PRECISIONS),
    (TRAIN, "--recompute", RECOMPUTE),
    (TRAIN, "--preset", "optimized baseline"),
    (TRAIN, "--variant", "attention=naive attention=flash attention=composed qkv=split qkv=fused gate_up=split "
     "gate_up=fused rms_norm=naive rms_norm=fused"),
    (TRAIN, "--graph", "auto on off"),
    (TRAIN, "--prefetch", "auto on off"),
    (TRAIN, "--on-save-error", "go-on stop"),
    (TRAIN + " --ranks 2", "--strategy", "ddp:naive ddp:flat ddp:overlap ddp:bucketed zero1:simple zero1 zero2 fsdp"),
    (TRAIN, "--strategy", "none"),
    (TRAIN, "--transport", "auto threads"),
    (TRAIN, "--wire", "fp32 bf16"),
    (TRAIN, "--bucket-mb", "auto 0 25"),
    (TRAIN, "--link", "latency=50us,bandwidth=1GB/s"),
    (f"bench op linear {DRY}", "--dtype", "fp32 bf16 fp16"),
    (f"bench op linear {DRY}", "--pass", "both forward backward dgrad wgrad"),
    (f"bench op linear {DRY}", "--format", FORMATS),
    (f"bench op linear {DRY}", "--variant", "all naive packed few_rows"),
    (f"bench step {DRY} --size nano", "--mode", MODES),
    (f"bench step {DRY} --size nano", "--preset", "optimized baseline both"),
    (f"bench step {DRY} --size nano", "--dtype", PRECISIONS),
    (f"bench step {DRY} --size nano", "--recompute", RECOMPUTE),
    (f"bench step {DRY} --size nano", "--graph", "auto on off"),
    (f"bench step {DRY} --size nano", "--export", "none svg"),
    (f"bench step {DRY} --size nano", "--format", FORMATS),
    ("bench step --list --device cpu", "--study", "2025 2026"),
    (f"bench warmup {DRY} --size nano", "--preset", "optimized baseline"),
    (f"bench warmup {DRY} --size nano", "--graph", "on off"),
    (f"bench flash {DRY}", "--table", "grid tokens16k steps"),
    (f"bench flash {DRY}", "--dtype", "fp32 bf16 fp16"),
    (f"bench attention {DRY}", "--variant", "all auto naive flash composed"),
    (f"bench allreduce {DRY}", "--transport", "threads mpi nccl"),
    (f"bench allreduce {DRY}", "--sums", "auto ranked engine"),
    (f"bench allreduce {DRY}", "--algorithm", "ring alternate"),
    (f"bench ddp {NANO}", "--form", "naive flat overlap bucketed"),
    (f"bench zero {NANO} --ranks 1,2 --measure off", "--stage", "0 1:simple 1 2 3"),
    (f"bench zero {NANO} --ranks 1,2 --stage 1", "--measure", "on off"),
    (f"memory {META}", "--phase", MODES),
    (f"memory {META}", "--preset", "optimized baseline"),
    (f"memory {META}", "--dtype", PRECISIONS),
    (f"memory {META}", "--recompute", RECOMPUTE),
    ("memory --size nano --ctx 16 --device meta --export none", "--measure", "auto never"),
    ("memory --size nano --ctx 16 --device meta", "--export", "svg html pickle json all none"),
    (f"memory scaling {META[:META.index(' --ctx')]} --ctx 16..32 --device meta", "--attention", "naive flash"),
    ("profile --device cuda:9999", "--phase", "forward backward optimizer"),
    ("profile --device cuda:9999", "--preset", "optimized baseline"),
    ("profile --device cuda:9999", "--graph", "auto on off"),
    ("profile --device cuda:9999", "--source", "auto cupti events"),
    ("residuals --block --size nano --batch 1 --ctx 16 --device meta", "--preset", "baseline optimized"),
    ("calc fsdp-savings --size nano --ranks 2", "--transport", "threads mpi nccl"),
    ("calc fsdp-savings --size nano --ranks 2", "--dtype", PRECISIONS),
    ("calc fsdp-savings --size nano --ranks 2", "--format", FORMATS),
    ("study 2025 --list --device cpu", "--scale", "auto full tiny"),
    ("study 2025 --list --device cpu", "--only",
     "step step-ctx step-fused warmup profile precision-accumulate precision-toymodel precision-layernorm "
     "precision-accumulation memory memory-ctx memory-scaling attention attention-naive flash flash-naive "
     "leaderboard-flash"),
    ("study 2026 --list --device cpu", "--only",
     "step step-10b warmup profile memory memory-fused residuals-block residuals-block-16-heads residuals-rms-norm "
     "recompute attention attention-naive weighted-sum"),
    ("convert --random nano --to /dev/null/x", "--dtype", "fp32 bf16 fp16"),
    ("convert --from RUN --to /dev/null/x", "--rope", "halves interleaved"),
    ("convert --random nano --to /dev/null/x", "--to-rope", "halves interleaved"),
    ("run --nproc 1 -- train --help", "--transport", "mpi threads nccl"),
    ("doctor --quick", "--device", "cpu cuda meta meta:cuda auto"),
]


# Defaults that are the same in other words.
SAID_OTHERWISE = {
    ("bench attention", "--d"): "16..128",
    ("bench ddp", "--form"): "naive,flat,overlap,bucketed",
    ("bench ddp", "--impl"): "naive,flat,overlap,bucketed",
    ("train", "--lr"): "0.001",
    ("train", "--on-save-error"): "continue",  # go-on is taken too
}


def names_under(heading, text):
    """The first words of the indented lines under a heading of help."""
    names, inside = [], False
    for line in text.split("\n"):
        if line.rstrip() == heading:
            inside = True
        elif inside and line and not line.startswith(" "):
            break
        elif inside and re.match(r"  [a-z]", line):
            names.append(line.split()[0])
    return names


def commands(program):
    """Every command and subcommand as its words, with its help."""
    found = []

    def add(words):
        text = program.run(*words, "--help").stdout
        found.append((words, text))
        for name in names_under("Subcommands:", text):
            add([*words, name])

    for name in names_under("Commands:", program.run("--help").stdout):
        add([name])
    return found


def options_in(text):
    """Names, what stands for the value ("" of a flag), and the default that is named, of each option in a help."""
    found = []
    for line in text.split("\n"):
        head = re.match(r"  (-[\w-]+(?:,\s*-[\w-]+)*)(?: (\S.*?))?(?:\s{2,}(.*))?$", line)
        if head:
            names = [n.strip() for n in head.group(1).split(",")]
            found.append([[n for n in names if n.startswith("--")], head.group(2) or "", head.group(3) or ""])
        elif found and line.startswith("      "):
            found[-1][2] += " " + line.strip()
    return [(names, value, default_in(words)) for names, value, words in found]


def default_in(words):
    """ "(default 8)" to "8"; of "fp32 (default), bf16" it is the word before; "" where it takes a sentence."""
    after = re.search(r"\(default ([^\s()]+)\)", words)
    before = re.search(r"(?:^|[,;] |or )([\w:-]+) \(default\)", words)
    return after.group(1).rstrip(",;") if after else before.group(1) if before else ""


def all_options(program):
    """(command, --name) to (what stands for the value, default)."""
    table = {}
    for words, text in commands(program):
        for names, value, default in options_in(text):
            for name in names:
                if name not in ("--help", "--help-all"):
                    table[" ".join(words), name] = (value, default)
    return table


def accepted(program, command, name, value):
    """None, or what the program said. The option has a wrong value and stands before a wrong --seed (or --device): an
    option that is known is answered with one of the two, a flag with the latter."""
    wrong, complaint = ("--seed=x", "--seed is 'x'") if name != "--seed" else ("--device=x", "unknown device 'x'")
    needed = ["--nproc=1"] if command == "run" and name != "--nproc" else []
    word = f"={'1' if name == '--seed' else 'x'}" if value else ""  # no number, which a flag would take too
    done = program.run(*command.split(), name + word, *needed, wrong, status=None)
    own = value and re.match(r"kiln: (\[\w+\] )?--[\w-]+ (is|has) 'x'", done.stderr)
    right = done.returncode == 2 and (complaint in done.stderr or own)
    return None if right else done.stderr.strip() or f"exit {done.returncode}"


def value_status(program, command, option, value):
    with common.TempFolder() as folder:
        out = [] if command.startswith(("convert", "run")) else [f"--out={folder}"]
        words = [str(common.HERE / "runs" / "adamw") if word == "RUN" else word for word in command.split()]
        at = words.index("--") if "--" in words else len(words)
        return program.run(*words[:at], f"{option}={value}", *out, *words[at:], cwd=folder, status=None).returncode


def make(program):
    table = all_options(program)
    for (command, name), (value, _) in table.items():
        said = accepted(program, command, name, value)
        if said:
            raise AssertionError(f"kiln {command} {name}: {said}")
    lines = [f"option {command} | {name}{' ' + value if value else ''} | {default}"
             for (command, name), (value, default) in sorted(table.items())]
    for command, option, values in VALUES:
        if value_status(program, command, option, WRONG) != 2:
            raise AssertionError(f"kiln {command} {option} {WRONG} is not refused")
        for value in values.split():
            if value_status(program, command, option, value) == 2:
                raise AssertionError(f"kiln {command} {option} {value} is refused")
        lines.append(f"values {command} | {option} | {values}")
    (common.HERE / GOLDENS).write_text("\n".join(lines) + "\n")
    return f"{len(table)} options, {sum(len(v.split()) for _, _, v in VALUES)} values"


def check_option(program, report, now, words):
    command, option, default = words
    name, _, value = option.partition(" ")
    said = accepted(program, command, name, value)
    if report.expect(said is None, f"kiln {command} {name}: {said}") and default:
        shown = now.get((command, name), ("", ""))[1]
        if shown:
            report.equal(f"kiln {command} {name}: the default", shown, SAID_OTHERWISE.get((command, name), default))


def check_values(program, report, words):
    command, option, values = words
    report.expect(value_status(program, command, option, WRONG) == 2,
                  f"kiln {command} {option} {WRONG} is not refused, so nothing is known of the others")
    for value in values.split():
        report.expect(value_status(program, command, option, value) != 2, f"kiln {command} {option} {value} is refused")


def check(program, report):
    now = all_options(program)
    for line in (common.HERE / GOLDENS).read_text().splitlines():
        kind, _, rest = line.partition(" ")
        words = [w.strip() for w in rest.split(" | ")]
        if kind == "option":
            check_option(program, report, now, words)
        else:
            check_values(program, report, words)
