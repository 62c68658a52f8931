"""What all parts share: starting the program, reading its JSON, comparing, and saying what differs."""
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODEL = HERE / "model.json"
TEXT = HERE / "text.txt"

# Kernels are chosen by instruction set, and some sums are other last bits by another. Every machine that tests run
# on has this one; the library's own functions (exp, log) are then those for it, too.
ISA = "avx2"


class Skip(Exception):
    """This machine or build cannot say; the reason is shown and the status is 77."""


class Program:
    def __init__(self, path):
        self.path = str(Path(path).resolve())
        # Nothing of the caller's own settings, and no GPU: goldens are of the CPU.
        keep = {k: v for k, v in os.environ.items() if not k.startswith(("KILN_", "OMPI_", "PMI", "SLURM_"))}
        self.environment = {**keep, "KILN_CPU_ISA": ISA, "CUDA_VISIBLE_DEVICES": "", "LC_ALL": "C"}

    def run(self, *words, cwd=None, status=0, isa=None, timeout=120):
        """The finished process; AssertionError with its last words where the status is another."""
        environment = {**self.environment, **({"KILN_CPU_ISA": isa} if isa else {})}
        done = subprocess.run([self.path, *map(str, words)], cwd=cwd, env=environment, capture_output=True, text=True,
                              errors="replace", timeout=timeout)
        if status is not None and done.returncode != status:
            raise AssertionError(f"kiln {' '.join(map(str, words))}: exit {done.returncode}, expected {status}: "
                                 f"{done.stderr.strip()[-400:]}")
        return done

    def json(self, *words, **options):
        words = (*words, "--json")
        text = self.run(*words, **options).stdout
        try:
            return json.loads(text)
        except ValueError as error:
            raise AssertionError(f"kiln {' '.join(map(str, words))}: not one JSON document: {error}") from None

    def require_isa(self):
        done = self.run("doctor", "--quick", status=None)
        if done.returncode == 3 and "KILN_CPU_ISA" in done.stderr:
            raise Skip(f"this CPU has no {ISA}")


class Report:
    """Collects what is wrong; a part is done to its end, so that one change is seen whole."""

    def __init__(self):
        self.failures = []
        self.checked = 0

    def expect(self, right, message):
        self.checked += 1
        if not right:
            self.failures.append(message)
        return right

    def equal(self, what, now, golden):
        return self.expect(now == golden, f"{what}: {now!r}, the golden is {golden!r}")


class TempFolder:
    def __enter__(self):
        self.path = Path(tempfile.mkdtemp(prefix="kiln-goldens-"))
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def tensors_of(path):
    """Name to (dtype, shape, bytes) of a safetensors file."""
    data = Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    body = data[8 + size:]
    return {name: (entry["dtype"], tuple(entry["shape"]), body[entry["data_offsets"][0]:entry["data_offsets"][1]])
            for name, entry in header.items() if name != "__metadata__"}


def tensor_hash(path):
    """Of the tensors alone: their order in the file and its metadata do not count."""
    digest = hashlib.sha256()
    for name, (dtype, shape, data) in sorted(tensors_of(path).items()):
        digest.update(f"{name} {dtype} {list(shape)} {len(data)}\n".encode())
        digest.update(data)
    return digest.hexdigest()


def newest_checkpoint(run):
    folders = sorted(p for p in (Path(run) / "checkpoints").glob("step-*") if p.name[5:].isdigit())
    if not folders:
        raise AssertionError(f"{run} has no checkpoint")
    return folders[-1]


def read_json(name):
    return json.loads((HERE / name).read_text())


def write_json(name, page):
    (HERE / name).write_text(json.dumps(page, indent=1) + "\n")
