#!/usr/bin/env python3
"""usage: terminal_width.py KILN

In a terminal no line of a table or of a help text is wider than it; --wide and a pipe have every column, and a line of
help stays one.
"""
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios

COLUMNS = 80
# Tables that are wider, with what their pages say below them.
COMMANDS = (
    "bench step --size nano --ctx 16 --batch 1 --steps 3 --warmup 1 --split",
    "bench attention --seq 64 --batch 1 --iters 3",
    "memory --size nano --ctx 16 --batch 1 --export none",
    "sizes",
)


def in_terminal(line, columns):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(line, stdout=slave, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    os.close(slave)
    text = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # how a closed terminal ends
            break
        if not part:
            break
        text += part
    os.close(master)
    assert process.wait() == 0, line
    return text.decode().replace("\r\n", "\n")


def widest(text):
    return max(text.splitlines(), key=len)


HELP = ("train", "diff", "bench step", "run")


def why_help_is_wrong(kiln, command):
    line = [kiln, *command.split(), "--help"]
    shown = in_terminal(line, COLUMNS)
    piped = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    # The command itself, as it is to be typed, is not broken up.
    long = [text for text in shown.splitlines() if len(text) > COLUMNS and len(text.split()) > 2]
    if long:
        return f"a line of {len(long[0])} characters: {long[0]}"
    if len(widest(piped)) <= COLUMNS:
        return "a pipe has no more than fits, so that nothing is tested here"
    if shown.split() != piped.split():
        return "not the words that a pipe gets"
    return None


def main():
    wrong = 0
    for command in HELP:
        why = why_help_is_wrong(sys.argv[1], command)
        print(f"{command} --help: {why or 'fits'}", flush=True)
        wrong += why is not None
    with tempfile.TemporaryDirectory() as out:
        for command in COMMANDS:
            line = [sys.argv[1], *command.split(), "--device", "cpu", "--out", out]
            shown = in_terminal(line, COLUMNS)
            piped = subprocess.run(line, capture_output=True, text=True, check=True).stdout
            wide = in_terminal([*line, "--wide"], COLUMNS)
            problems = []
            if len(widest(shown)) > COLUMNS:
                problems.append(f"a line of {len(widest(shown))} characters: {widest(shown)}")
            if len(widest(piped)) <= COLUMNS or len(widest(wide)) <= COLUMNS:
                problems.append("a pipe or --wide has no more than fits, so that nothing is tested here")
            if not re.search(r"^\d+ columns? more with --wide", shown, re.M):
                problems.append("does not say that there are more columns")
            print(f"{command}: {'; '.join(problems) or 'fits'}", flush=True)
            wrong += bool(problems)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
