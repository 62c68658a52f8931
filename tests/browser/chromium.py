"""A headless Chromium over its debugging pipe: pages opened from disk, their console, their pictures. Only the standard
library is needed. Skips (exit 77) where no Chromium is installed: tools/install.sh browser."""
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def program():
    path = os.environ.get("CHROMIUM") or next((p for p in map(shutil.which, NAMES) if p), None)
    if not path:
        print("skipped: no chromium; tools/install.sh browser installs it")
        sys.exit(SKIPPED)
    return path


class Browser:
    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs, self.write_to = os.pipe()
        self.read_from, ours = os.pipe()

        def pipes():  # the debugging pipe is file 3 in and file 4 out
            a, b = os.dup(theirs), os.dup(ours)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", f"--user-data-dir={self.profile.name}", "--remote-debugging-pipe"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=pipes, close_fds=False)
        os.close(theirs)
        os.close(ours)
        self.rest, self.last, self.events = b"", 0, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = None
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.write_to)
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read_from)
        self.profile.cleanup()

    def message(self):
        while b"\0" not in self.rest:
            more = os.read(self.read_from, 1 << 20)
            if not more:
                raise RuntimeError("chromium has ended")
            self.rest += more
        one, self.rest = self.rest.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, **params):
        self.last += 1
        request = {"id": self.last, "method": method, "params": params}
        if getattr(self, "session", None):
            request["sessionId"] = self.session
        os.write(self.write_to, json.dumps(request).encode() + b"\0")
        while True:
            reply = self.message()
            if reply.get("id") == self.last:
                if "error" in reply:
                    raise RuntimeError(f"{method}: {reply['error']}")
                return reply["result"]
            self.events.append(reply)

    def open(self, path):
        """Seconds until the page was complete."""
        self.events.clear()
        begin = time.monotonic()
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self.message())
        return time.monotonic() - begin

    def evaluate(self, script):
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def complaints(self):
        """Errors and warnings of the console, and whatever the page asked of the network."""
        said = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                said.append(str(params["args"]))
            if event.get("method") == "Runtime.exceptionThrown":
                said.append(params["exceptionDetails"]["text"])
            if event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                said.append(params["entry"]["text"])
            if event.get("method") == "Network.requestWillBeSent" and not params["request"]["url"].startswith(
                    ("file:", "data:", "about:")):
                said.append("asked for " + params["request"]["url"])
        return said

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def print_media(self, on):
        self.call("Emulation.setEmulatedMedia", media="print" if on else "")

    def screenshot(self, path, width=1200, height=1600, whole=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture))

    def pdf(self):
        return base64.b64decode(self.call("Page.printToPDF")["data"])
