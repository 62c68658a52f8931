"""kiln's commands from Python: each is the program with --json, and what it printed, as Python has it.

    rows = kiln.bench_step(size=["nano", "micro"], ctx=[64, 128], preset="baseline")

Options are keyword arguments: bucket_mb=[1, 10] is --bucket-mb 1,10, causal=True is --causal. The program is the one in
$KILN, on PATH, or in the build folder of this source tree.
"""
import json
import os
import shutil
import subprocess
from pathlib import Path

from ._library import BadArgument, KilnError, NotAvailable

_TREE = Path(__file__).resolve().parent.parent.parent
_KINDS = {2: BadArgument, 3: NotAvailable}  # by exit status


def program():
    """The path of kiln; NotAvailable where there is none."""
    asked = os.environ.get("KILN")
    found = asked or shutil.which("kiln") or next(
        (str(p) for p in (_TREE / "build-cuda/kiln", _TREE / "build/kiln") if p.exists()), None)
    if not found:
        raise NotAvailable("the program kiln was not found; build it with make build, or set KILN to its path")
    return found


def _words(name, value):
    option = "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    if isinstance(value, (list, tuple, range)):
        value = ",".join(str(v) for v in value)
    return [option, str(value)]


def run(*command, **options):
    """`kiln.run("bench", "step", size="nano")`: the document that --json prints, as a dict."""
    line = [program(), *map(str, command), "--json"]
    for name, value in options.items():
        line += _words(name, value)
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        said = [l for l in done.stderr.decode(errors="replace").splitlines() if l.startswith(("kiln:", "hint:"))]
        raise _KINDS.get(done.returncode, KilnError)(" ".join(said) or f"{' '.join(line)} ended with {done.returncode}")
    return json.loads(done.stdout)


def rows_of(document):
    """The rows of a document, those of its parts too: a DataFrame where pandas is present, else a list of dicts."""
    rows = list(document.get("rows", []))
    for part in document.get("parts", []):
        rows += part.get("rows", [])
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)


def _rows_of_command(*command, says):
    def call(*words, **options):
        return rows_of(run(*command, *words, **options))

    call.__name__ = "_".join(command).replace("-", "_")
    call.__doc__ = f"`kiln {' '.join(command)}`: {says}. A row each."
    return call


bench_step = _rows_of_command("bench", "step", says="whole training steps, forward, backward and optimizer apart")
bench_op = _rows_of_command("bench", "op", says="every variant of the op that is the first argument")
bench_attention = _rows_of_command("bench", "attention", says="attention alone over lengths and head sizes")
bench_flash = _rows_of_command("bench", "flash", says="attention's kernels with a cold cache")
bench_warmup = _rows_of_command("bench", "warmup", says="every step of a cold program")
bench_allreduce = _rows_of_command("bench", "allreduce", says="sums over ranks")
bench_ddp = _rows_of_command("bench", "ddp", says="forms of data parallelism")
bench_zero = _rows_of_command("bench", "zero", says="stages of sharding")
bench_fsdp = _rows_of_command("bench", "fsdp", says="sharded weights, gathered ahead")
memory = _rows_of_command("memory", says="peaks of a step, predicted and measured")
precision = _rows_of_command("precision", says="the study that is the first argument")
ablate = _rows_of_command("ablate", says="the optimizations one by one, added up and taken away")
compare = _rows_of_command("compare", says="theory, roofline, prediction and measurement of a step")
profile = _rows_of_command("profile", says="a traced step")


def report(**options):
    """`kiln report`: writes the page of all that is stored, and returns what it says of it; `files` has the paths."""
    return run("report", **options)


COMMANDS = __all__ = ["ablate", "bench_allreduce", "bench_attention", "bench_ddp", "bench_flash", "bench_fsdp", "bench_op",
            "bench_step", "bench_warmup", "bench_zero", "compare", "memory", "precision", "profile", "report", "rows_of", "run"]
