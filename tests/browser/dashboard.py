#!/usr/bin/env python3
"""The dashboard in a browser: while a run trains, when it has ended, and over a million steps.

    tests/browser/dashboard.py KILN [FOLDER]      FOLDER keeps the pictures
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from browser import Browser, check

HOSTILE = 'a<img src=x onerror=window.hurt=1>'
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def address_of(process):
    """What the program says of its page."""
    for line in process.stderr:
        found = re.search(r'dashboard  (http://127\.0\.0\.1:\d+/)', line)
        if found:
            return found[1]
    raise AssertionError('no dashboard was announced')


def calm(page):
    check(page.errors == [], f'the console has {page.errors}')
    check(not page.eval('window.hurt'), 'markup from a name ran')
    check(page.eval('document.images.length') == 0, 'a name became an element')


def watch_training(browser, kiln, folder):
    run = os.path.join(folder, HOSTILE)
    process = subprocess.Popen(
        [kiln, 'train', '--size', 'nano', '--text', os.path.join(ROOT, 'README.md'), '--steps', '1000000', '--ctx', '64',
         '--eval-every', '50', '--threads', '1', '--sample-tokens', '0', '--device', 'cpu', '--dashboard', '0', '--fresh', '--out',
         run], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        url = address_of(process)
        page = browser.open(url)
        page.wait('data !== null && data.summary.state === "training" && data.summary.step > 60 && data.summary.validation_loss !== null', 60)
        page.wait('data.summary.seconds_left !== null', 30)
        check(HOSTILE in page.eval('el("run").textContent'), 'the name is shown as it is')
        for figure in ('tokens_per_s', 'of_peak', 'step_ms', 'peak_bytes', 'grad_norm', 'data_wait'):
            check(page.eval(f'data.summary.{figure} !== null'), f'no {figure}')
            check(page.ink(f'document.querySelector("#{figure} canvas")') > 5, f'{figure} is not drawn')
        check('left, give or take' in page.eval('el("progress").textContent'), 'time left and its error')
        page.screenshot(os.path.join(folder, 'dashboard-light.png'))
        box = page.eval('(r => [r.left, r.top, r.width, r.height])(el("loss-plot").getBoundingClientRect())')
        page.mouse('mouseMoved', box[0] + box[2] / 2, box[1] + box[3] / 2)
        check('step' in page.wait('el("loss-hover").textContent'), 'the pointer says which step')
        step = page.eval('data.summary.step')
        page.wait(f'data.summary.step > {step}', 30)  # it moves by itself
        page.eval('el("log").click()')
        page.dark(True)
        page.frames()
        page.screenshot(os.path.join(folder, 'dashboard-dark.png'))
        calm(page)
        policy = urllib.request.urlopen(url).headers['Content-Security-Policy']
        check("default-src 'none'" in policy and 'unsafe' not in policy, policy)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        process.stderr.read()
        check(process.wait(30) == 0, f'ended with {process.returncode}')
        print(f'training ended {time.monotonic() - begin:.2f} s after Ctrl-C')
        page.wait('el("note").textContent.includes("No answer")', 30)
    finally:
        process.kill()
        process.wait()
    return run


def watch_folder(browser, kiln, run, ready, picture=None):
    """`kiln watch --dashboard` of a folder; returns how long until `ready`, and what the program computed until then."""
    process = subprocess.Popen([kiln, 'watch', run, '--dashboard', '0'], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True)
    try:
        url = address_of(process)
        begin = time.monotonic()
        page = browser.open(url)
        page.wait(ready, 30)
        took = time.monotonic() - begin
        with open(f'/proc/{process.pid}/stat', encoding='ascii') as file:
            fields = file.read().rpartition(')')[2].split()
        computed = (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')
        if picture:
            page.screenshot(picture)
        calm(page)
        process.send_signal(signal.SIGINT)
        check(process.wait(5) == 0, 'Ctrl-C ends it')
        return took, computed
    finally:
        process.kill()
        process.wait()


def million_steps(folder):
    run = os.path.join(folder, 'million')
    os.makedirs(run, exist_ok=True)
    with open(os.path.join(run, 'run.json'), 'w') as file:
        json.dump({'options': {'model': 'made up', 'steps': 1000000, 'precision': 'fp32'}, 'machine': {'device': 'cpu'}}, file)
    with open(os.path.join(run, 'metrics.jsonl'), 'w') as file:
        for i in range(1, 1000001):
            file.write(f'{{"step":{i},"loss":{3 + 4 / (1 + i / 1e4) + (i * 7919 % 97) / 300:.5f},"lr":0.001,"grad_norm":0.5,"clip":1,'
                       f'"loss_scale":1,"skipped":false,"seconds":0.0125,"tokens":1024,"host_wait_ms":0.01,"at":{1.7e9 + i / 80:.3f},'
                       '"peak_bytes":123456789}\n')
        file.write('{"step":1000001,"lo')  # a run that was killed in the middle of a line
    return run


def main():
    kiln = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as temporary, Browser() as browser:
        folder = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else temporary
        os.makedirs(folder, exist_ok=True)
        run = watch_training(browser, kiln, folder)
        watch_folder(browser, kiln, run, 'data !== null && data.summary.state === "stopped" && el("loss-value").textContent.length > 4')
        took, computed = watch_folder(browser, kiln, million_steps(folder), 'data !== null && data.summary.step === 1000000',
                            os.path.join(folder, 'dashboard-million.png'))
        print(f'a million steps: shown after {took:.2f} s, {computed:.2f} s of them computing')
        check(computed < 2, f'a million steps took {computed:.2f} s of computing, expected 2')  # tests run beside others
        taken = subprocess.Popen([kiln, 'watch', run, '--dashboard', '0'], stderr=subprocess.PIPE, text=True)
        try:
            port = re.search(r':(\d+)/', address_of(taken))[1]
            second = subprocess.run([kiln, 'watch', run, '--dashboard', port], capture_output=True, text=True)
            check(second.returncode == 1 and second.stderr.count('\n') == 2 and f'127.0.0.1:{port}' in second.stderr, second.stderr)
        finally:
            taken.kill()
            taken.wait()
    print('dashboard: all is as it should be')


if __name__ == '__main__':
    main()
