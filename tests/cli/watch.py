#!/usr/bin/env python3
"""usage: watch.py KILN
kiln watch beside a run that trains: in a terminal it redraws in place and stays within its width, elsewhere it writes
plain lines; it ends with the run, or at once at Ctrl-C, and the run does not notice."""
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

COLUMNS, ROWS = 80, 24


class Terminal:
    """A program in a terminal of 80 by 24."""

    def __init__(self, line):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave,
                                        env={**os.environ, "LC_ALL": "C.UTF-8"})
        os.close(slave)
        self.text = b""

    def read_for(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if not select.select([self.master], [], [], 0.1)[0]:
                continue
            try:
                piece = os.read(self.master, 65536)
            except OSError:  # how a closed terminal ends
                return
            if not piece:
                return
            self.text += piece


def check(condition, text):
    if not condition:
        sys.exit(text)


def start_training(kiln, run, steps):
    line = [kiln, "train", "--size", "nano", "--steps", str(steps), "--ctx", "64", "--batch", "4", "--threads", "1",
            "--train-bpe", "300", "--sample-tokens", "0", "--device", "cpu", "--out", run]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    path, until = os.path.join(run, "metrics.jsonl"), time.monotonic() + 60
    while not (os.path.exists(path) and os.path.getsize(path) > 5000) and time.monotonic() < until:
        time.sleep(0.05)
    check(process.poll() is None, "training ended before it was watched")
    return process


def watched_in_a_terminal(kiln, run):
    terminal = Terminal([kiln, "watch", run, "--interval", "0.2"])
    terminal.read_for(2)
    terminal.process.send_signal(signal.SIGINT)
    begin = time.monotonic()
    terminal.read_for(3)
    check(terminal.process.wait(10) == 0, f"Ctrl-C: exit {terminal.process.returncode}")
    check(time.monotonic() - begin < 8, "Ctrl-C is not answered")
    text = terminal.text.decode()
    screens = re.split(r"\x1b\[\d+A\r", text)
    check(len(screens) > 2, f"{len(screens)} screens in two seconds: {text!r}")
    for screen in screens[:-1]:  # in the last one Ctrl-C has its word
        plain = re.sub(r"\x1b\[[0-9]*[A-Za-z]", "", screen).replace("\r", "")
        lines = plain.split("\n")
        check(len(lines) <= ROWS, f"{len(lines)} lines of a screen of {ROWS}")
        check(all(len(line) <= COLUMNS for line in lines), f"a line is too wide: {plain}")
        for word in ("training", "loss", "tokens/s", "MFU", "peak memory"):
            check(word in plain, f"no '{word}' in {plain}")
        check(any("\u2800" < c < "\u28ff" for c in plain), "no curve of dots")


def main():
    kiln = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "run")
        training = start_training(kiln, run, 100000)
        try:
            page = json.loads(subprocess.run([kiln, "watch", run, "--json"], capture_output=True, text=True, check=True).stdout)
            check(page["state"] == "training" and page["step"] > 0 and page["steps"] == 100000, f"{page}")
            check(page["peak_bytes"] == page["predicted_peak_bytes"], "the peak is not the predicted one")
            watched_in_a_terminal(kiln, run)
            follower = subprocess.Popen([kiln, "watch", run, "--interval", "0.1"], stdout=subprocess.PIPE, text=True)
            first = follower.stdout.readline()
            check(re.match(r".*run: training, step \d+ of 100000, loss \d", first), f"a plain line: {first!r}")
            training.send_signal(signal.SIGINT)
            check(training.wait(60) == 0, f"training: exit {training.returncode}")
            rest = follower.stdout.read()
            check(follower.wait(20) == 0 and "run: stopped, step" in rest.splitlines()[-1], f"it ends with the run: {rest!r}")
            check("\x1b" not in first + rest, "escape sequences in a file")
        finally:
            training.kill()
            training.wait()
        # A process that was killed in the middle of a line.
        with open(os.path.join(run, "metrics.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"step":99999,"loss":1.')
        after = json.loads(subprocess.run([kiln, "watch", run, "--json"], capture_output=True, text=True, check=True).stdout)
        check(after["state"] == "stopped" and after["step"] < 99999 and after["unreadable_lines"] == 0, f"{after}")
        for wrong, words in ((folder, "no folder of kiln train"), (os.path.join(folder, "none"), "is no folder")):
            done = subprocess.run([kiln, "watch", wrong], capture_output=True, text=True)
            check(done.returncode == 2 and words in done.stderr and done.stderr.count("\n") == 2, done.stderr)
    print("watch: all is as it should be")


main()
