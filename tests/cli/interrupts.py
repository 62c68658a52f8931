#!/usr/bin/env python3
"""usage: interrupts.py KILN [COMMAND...]

Ctrl-C is answered in words at once and ends a command soon: after the step or call under way, or where there is nothing
worth keeping, right there. A second one ends it at once. Each command is one that would take long.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

ANSWER, END = 2.0, 60.0  # seconds; the second also where others use the machine. Without asking it would be hours.

# By command: what makes it take long. KEPT ends with 0 and a page, or says that nothing was complete.
KEPT = {
    "bench step": "--size tiny --steps 100000 --warmup 1",
    "bench op": "linear",
    "bench attention": "--batch 1 --seq 1024 --d 64 --iters 1000000 --seconds 10000 --variant flash",
    "bench leaderboard": "flash --heads 1 --seq 1024 --d 64 --seconds 10000 --warmup 0 --variant flash",
    "bench zero": "--size tiny --steps 100000 --ranks 2",
    "profile": "--size tiny,micro --steps 4000",
    "ablate": "--size tiny --steps 100000 --gate-steps 1000",
    "train": "--size tiny --steps 1000000 --save-every 0 --fresh",
}
# Nothing is kept.
AT_ONCE = {
    "precision accumulation": "",
    "convert": "--size 10b --to OUT/model",
}


def why_wrong(kiln, command, options, kept):
    with tempfile.TemporaryDirectory() as out:
        line = [kiln, *command.split(), *options.replace("OUT", out).split(), "--out", out]
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))
        try:
            try:
                process.wait(3)
                return f"ended before it was interrupted: {process.stderr.read().strip()[-300:]}"
            except subprocess.TimeoutExpired:
                pass
            begun = time.monotonic()
            process.send_signal(signal.SIGINT)
            said, answered = "", None
            os.set_blocking(process.stderr.fileno(), False)
            while process.poll() is None and time.monotonic() - begun < END:
                said += (process.stderr.read() or b"").decode(errors="replace")
                if answered is None and re.search("kiln: (stopping|interrupted)", said):
                    answered = time.monotonic() - begun
                time.sleep(0.05)
            status = process.poll()
            said += (process.stderr.read() or b"").decode(errors="replace")
            if status is None:
                return f"still runs {END:.0f} s after Ctrl-C"
            if not re.search("kiln: (stopping|interrupted)", said):
                return f"says nothing; ends with {status}: {said.strip()[-300:]}"
            if answered is not None and answered > ANSWER:
                return f"answers after {answered:.1f} s"
            if status != (0 if kept else -signal.SIGINT):
                return f"ends with {status}: {said.strip()[-300:]}"
        finally:
            process.kill()
            process.wait()
    return None


def main():
    kiln, wanted = sys.argv[1], sys.argv[2:]
    wrong = 0
    for commands, kept in ((KEPT, True), (AT_ONCE, False)):
        for command, options in commands.items():
            if wanted and command not in wanted:
                continue
            why = why_wrong(kiln, command, options, kept)
            print(f"{command}: {why or 'answers and ends'}", flush=True)
            wrong += why is not None
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
