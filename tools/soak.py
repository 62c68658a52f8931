#!/usr/bin/env python3
"""usage: tools/soak.py KILN [--steps N] [--ranks N] [--most-growth PERCENT] [-- MORE TRAIN OPTIONS]

Trains the smallest model for many steps, with saves and validations on the way, and watches the process from outside:
after step 200 its resident set may grow by less than 1 %, its open files must stay as many as they were, and the device's
memory must peak where it was predicted, to the byte. A run that is given an argument that leaks must not pass, so the same
measurement is first tried on a process that keeps 1 KiB a step."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

WARM = 200  # steps until everything has been used once
PERIOD_S = 0.02


def sample(pid):
    """Resident bytes and open files; None once it is over."""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        rss = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
        # What a library opens for a moment to read is not kept: the least of some readings counts.
        files = min(len(os.listdir(f"/proc/{pid}/fd")) for _ in range(3))
        return rss * 1024, files
    except (OSError, StopIteration):
        return None


def watch(process, step_of):
    """(step, resident bytes, open files) at each look, while it runs."""
    seen = []
    while process.poll() is None:
        step = step_of()
        now = sample(process.pid)
        if now and step >= WARM:
            seen.append((step, *now))
        time.sleep(PERIOD_S)
    return seen


def growth_of(seen):
    """Percent, from the first tenth to the last: each the median, since pages come and go."""
    tenth = max(3, len(seen) // 10)
    middle = lambda part: sorted(rss for _, rss, _ in part)[len(part) // 2]
    return 100 * (middle(seen[-tenth:]) / middle(seen[:tenth]) - 1)


class Steps:
    """The last step in a metrics file that grows, read where it was left."""

    def __init__(self, path):
        self.path, self.at, self.last = path, 0, 0

    def __call__(self):
        try:
            with self.path.open() as lines:
                lines.seek(self.at)
                text = lines.read()
        except OSError:
            return self.last
        whole = text.rfind("\n") + 1
        self.at += whole
        for line in text[:whole].splitlines()[-3:]:
            self.last = max(self.last, json.loads(line).get("step", 0))
        return self.last


def leaking(steps, path):
    """A process that does nothing but keep a KiB a step."""
    code = ("import sys, time\nkept = [bytes(20 << 20)]\nout = open(sys.argv[1], 'w')\n"
            "for step in range(1, int(sys.argv[2]) + 1):\n"
            "    kept.append(bytes([1]) * 1024); time.sleep(0.0005)\n"
            "    out.write('{\"step\": %d}\\n' % step); out.flush()\n")
    return subprocess.Popen([sys.executable, "-c", code, str(path), str(steps)])


def fail(what):
    print(f"soak: FAILED: {what}")
    sys.exit(1)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0][7:])
    parser.add_argument("kiln")
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--most-growth", type=float, default=1)
    parser.add_argument("more", nargs="*")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kiln-soak-") as folder:
        work = pathlib.Path(folder)
        planted = leaking(2000, work / "leak")
        if growth_of(watch(planted, Steps(work / "leak"))) < 1:
            fail("a process that keeps 1 KiB a step was not noticed")
        (work / "text").write_text("".join(f"the cat sat on mat {i % 7}, the dog on log {i % 11}\n" for i in range(400)))
        ranks = ["--ranks", str(options.ranks), "--strategy", "ddp:bucketed"] if options.ranks > 1 else []
        words = [options.kiln, "train", "--text", str(work / "text"), "--out", str(work / "run"), "--size", "nano", "--batch",
                 str(2 * options.ranks), "--context", "16", "--threads", "1", "--steps", str(options.steps), "--save-every",
                 str(max(100, options.steps // 20)), "--eval-every", str(max(100, options.steps // 20)), "--eval-batches", "1",
                 "--sample-tokens", "0", "--lr", "1e-3", *ranks, *options.more]
        began = time.monotonic()
        with (work / "said").open("w") as said:
            process = subprocess.Popen(words, stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            seen = watch(process, Steps(work / "run/metrics.jsonl"))
        text = (work / "said").read_text()
        if process.returncode != 0:
            fail(f"exit {process.returncode}\n{text[-2000:]}")
        if len(seen) < 20:
            fail(f"only {len(seen)} looks after step {WARM}: more --steps are needed")
        growth, files = growth_of(seen), sorted({n for _, _, n in seen})
        figures = (f"{options.steps} steps in {time.monotonic() - began:.0f} s: resident set {growth:+.2f} % after step {WARM} "
                   f"(at {seen[-1][1] / 2**20:.1f} MiB), open files {files[0]} to {files[-1]}")
        if growth >= options.most_growth:
            fail(f"{figures}; at most {options.most_growth} % are allowed")
        # A save and a validation have files open while they last.
        first, last = seen[: len(seen) // 10 + 1], seen[-(len(seen) // 10 + 1):]
        if min(n for _, _, n in first) != min(n for _, _, n in last):
            fail(f"{figures}: they became more")
        if "the same to the byte" not in text:
            fail(f"{figures}; device memory peaked elsewhere than predicted:\n{text[-2000:]}")
        print(f"soak: {figures}, device memory at its predicted peak to the byte")
    return 0


if __name__ == "__main__":
    sys.exit(main())
