"""Chromium without a window, driven over a pipe (--remote-debugging-pipe): no module beyond Python's own.

    with Browser() as browser:
        page = browser.open('file:///...', width=1300, height=900, dark=True)
        page.wait('document.body.dataset.ready')
"""
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
NAMES = ('chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable')


def find_browser():
    """Its path; ends the test as skipped, with the reason, where there is none."""
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    print('skipped: pages in a browser: chromium was not found (tools/install.sh browser)')
    sys.exit(SKIPPED)


class Page:
    def __init__(self, browser, session):
        self.browser, self.session, self.errors = browser, session, []

    def call(self, method, **params):
        return self.browser.call(method, params, self.session)

    def eval(self, script):
        answer = self.call('Runtime.evaluate', expression=script, returnByValue=True, awaitPromise=True)
        if 'exceptionDetails' in answer:
            raise AssertionError(f'{script}: {answer["exceptionDetails"]}')
        return answer['result'].get('value')

    def wait(self, condition, seconds=20):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            value = self.eval(condition)
            if value:
                return value
            time.sleep(0.05)
        raise AssertionError(f'after {seconds} s still not: {condition}; errors: {self.errors}')

    def mouse(self, kind, x, y, **more):
        self.call('Input.dispatchMouseEvent', type=kind, x=x, y=y, **more)

    def click(self, x, y, count=1):
        self.mouse('mouseMoved', x, y)
        for kind in ('mousePressed', 'mouseReleased'):
            self.mouse(kind, x, y, button='left', clickCount=count)

    def wheel(self, x, y, by):
        self.mouse('mouseWheel', x, y, deltaX=0, deltaY=by)

    def drag(self, x, y, to_x):
        self.mouse('mousePressed', x, y, button='left', clickCount=1)
        for i in range(1, 6):
            self.mouse('mouseMoved', x + (to_x - x) * i / 5, y, button='left', buttons=1)
        self.mouse('mouseReleased', to_x, y, button='left', clickCount=1)

    def dark(self, on):
        self.call('Emulation.setEmulatedMedia',
                  features=[{'name': 'prefers-color-scheme', 'value': 'dark' if on else 'light'}])

    def frames(self):
        """Two pictures later what was asked to be drawn is drawn."""
        self.eval('new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))')

    def computing(self):
        """Seconds of computing that the page's main thread has had so far; not those in which others had the machine."""
        metrics = {m['name']: m['value'] for m in self.call('Performance.getMetrics')['metrics']}
        return metrics['TaskDuration']

    def screenshot(self, path):
        self.frames()
        with open(path, 'wb') as file:
            file.write(base64.b64decode(self.call('Page.captureScreenshot', format='png')['data']))

    def ink(self, canvas):
        """How many different colours a canvas has."""
        return self.eval(f'''(() => {{ const c = {canvas}, d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data,
            seen = new Set(); for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 24 | d[i + 1] << 16 | d[i + 2] << 8 | d[i + 3]);
            return seen.size; }})()''')


class Browser:
    def __enter__(self):
        program = find_browser()
        self.folder = tempfile.mkdtemp(prefix='kiln-browser-')
        to_it, ours_out = os.pipe()
        ours_in, from_it = os.pipe()

        def fds():  # it reads commands from 3 and answers on 4
            high = [os.dup(fd) for fd in (to_it, from_it)]
            while min(high) < 5:
                high = [os.dup(fd) for fd in high]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.log = open(os.path.join(self.folder, 'log'), 'wb')
        self.process = subprocess.Popen(
            [program, '--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
             '--disable-extensions', '--disable-background-networking', '--disable-component-update',
             '--remote-debugging-pipe', f'--user-data-dir={self.folder}/profile', 'about:blank'],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, preexec_fn=fds, close_fds=False)
        os.close(to_it)
        os.close(from_it)
        self.out, self.inn = ours_out, ours_in
        self.number, self.buffer, self.pages = 0, b'', {}
        return self

    def __exit__(self, *_):
        try:
            self.call('Browser.close', {})
        except (AssertionError, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.inn)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def message(self):
        while b'\0' not in self.buffer:
            piece = os.read(self.inn, 1 << 20)
            if not piece:
                raise AssertionError('the browser has ended: ' + open(self.log.name, errors='replace').read()[-2000:])
            self.buffer += piece
        text, self.buffer = self.buffer.split(b'\0', 1)
        return json.loads(text)

    def call(self, method, params, session=None):
        self.number += 1
        request = {'id': self.number, 'method': method, 'params': params}
        if session:
            request['sessionId'] = session
        os.write(self.out, json.dumps(request).encode() + b'\0')
        while True:
            m = self.message()
            if m.get('id') == self.number:
                if 'error' in m:
                    raise AssertionError(f'{method}: {m["error"]}')
                return m['result']
            self.note(m)

    def note(self, m):
        page, p = self.pages.get(m.get('sessionId')), m.get('params', {})
        if page is None:
            return
        if m['method'] == 'Runtime.exceptionThrown':
            page.errors.append(str(p['exceptionDetails'].get('exception', p['exceptionDetails'])))
        elif m['method'] == 'Log.entryAdded' and p['entry']['level'] in ('error', 'warning'):
            page.errors.append(p['entry']['text'])
        elif m['method'] == 'Runtime.consoleAPICalled' and p['type'] in ('error', 'warning'):
            page.errors.append(str(p['args']))

    def open(self, url, width=1300, height=900, dark=False):
        target = self.call('Target.createTarget', {'url': 'about:blank'})['targetId']
        session = self.call('Target.attachToTarget', {'targetId': target, 'flatten': True})['sessionId']
        page = self.pages[session] = Page(self, session)
        for domain in ('Page', 'Runtime', 'Log'):
            page.call(domain + '.enable')
        page.call('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=1, mobile=False)
        page.call('Performance.enable', timeDomain='threadTicks')
        page.dark(dark)
        page.call('Page.navigate', url=url)
        page.wait('document.readyState === "complete" && location.href !== "about:blank"', 60)
        return page


def check(condition, text):
    if not condition:
        raise AssertionError(text)
