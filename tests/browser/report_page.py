#!/usr/bin/env python3
"""usage: report_page.py KILN STORE [PICTURES]

The report in a real browser: complete without network and console errors, what rows hold stays text, readable in light
and dark, printable, and a report over 1,000 runs opens within 2 seconds and 5 MB. STORE: a results.jsonl with rows of
every kind. PICTURES: a folder for screenshots."""
import json
import os
import subprocess
import sys
import tempfile
import time

import chromium

KILN, STORE = sys.argv[1:3]
PICTURES = sys.argv[3] if len(sys.argv) > 3 else None
NASTY = "<script>window.hacked=1</script><img src=x onerror='window.hacked=2'>"


def report(folder, rows):
    with open(os.path.join(folder, "results.jsonl"), "w") as file:
        file.writelines(json.dumps(r) + "\n" for r in rows)
    subprocess.run([KILN, "report", "--out", folder], check=True, stdout=subprocess.DEVNULL)
    return os.path.join(folder, "report.html")


def stored():
    with open(STORE) as file:
        return [json.loads(line) for line in file]


def timed(row):
    row.update(status="ok", gate="passed", schema=2)
    return row


def lightness(browser, property_name):
    return browser.evaluate(
        f"(() => {{ const c = getComputedStyle(document.body).{property_name}.match(/\\d+/g).map(Number);"
        " return (c[0] + c[1] + c[2]) / 3; })()")


def check_page(browser, page):
    took = browser.open(page)
    assert not browser.complaints(), browser.complaints()
    assert browser.evaluate("document.title") == "kiln report"
    assert browser.evaluate("document.scripts.length") == 0
    charts = browser.evaluate("document.querySelectorAll('figure').length")
    assert charts > 3, f"only {charts} charts"
    broken = browser.evaluate("[...document.images].filter(i => !i.complete || i.naturalWidth === 0).length")
    assert broken == 0, f"{broken} pictures are broken"
    dead = browser.evaluate("[...document.querySelectorAll('a[href^=\"#\"]')]"
                            ".filter(a => !document.getElementById(a.getAttribute('href').slice(1))).length")
    assert dead == 0, f"{dead} links lead nowhere"
    wide = browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"the page is {wide} px wider than its window"
    overflowing = browser.evaluate(
        "[...document.querySelectorAll('figure > svg')].flatMap(svg => { const box = svg.getBoundingClientRect();"
        " return [...svg.querySelectorAll('text')].filter(t => { const b = t.getBoundingClientRect();"
        " return b.right > box.right + 1 || b.left < box.left - 1; }).map(t => t.textContent); })")
    assert not overflowing, f"text runs out of its chart: {overflowing}"
    return took


def check_colours(browser, page):
    for scheme, dark in (("light", False), ("dark", True)):
        browser.scheme(scheme)
        browser.open(page)
        ground, ink = lightness(browser, "backgroundColor"), lightness(browser, "color")
        assert (ground < 60) == dark and (ink > 180) == dark, f"{scheme}: ground {ground}, ink {ink}"
        if PICTURES:
            browser.screenshot(os.path.join(PICTURES, f"report-{scheme}.png"))
            browser.screenshot(os.path.join(PICTURES, f"report-{scheme}-whole.png"), whole=True, height=12000)
    browser.print_media(True)
    assert browser.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert browser.pdf().startswith(b"%PDF")
    if PICTURES:
        browser.screenshot(os.path.join(PICTURES, "report-print.png"), width=800)
    browser.print_media(False)
    browser.scheme("light")


def check_hostile(browser, folder):
    rows = stored()
    for row in rows:
        for key in ("size", "dtype", "device", "preset", "variant", "form", "reason", "switch"):
            if key in row:
                row[key] = NASTY + str(row[key])
        row["build_id"] = NASTY
        row["host"] = {"device_name": NASTY}
    browser.open(report(folder, rows))
    assert browser.evaluate("window.hacked === undefined"), "a string of a row ran"
    assert browser.evaluate("document.scripts.length") == 0
    assert browser.evaluate("document.querySelectorAll('img[src=x]').length") == 0
    assert NASTY in browser.evaluate("document.body.textContent"), "it is shown as it is"
    assert not browser.complaints(), browser.complaints()


def check_policy(browser, folder, page):
    """Were anything to get past the escaping, the policy still holds."""
    injected = os.path.join(folder, "injected.html")
    with open(page) as file:
        text = file.read()
    with open(injected, "w") as file:
        file.write(text.replace("</main>", "<script>window.hacked=3</script><img src='https://example.invalid/x.png'></main>"))
    browser.open(injected)
    assert browser.evaluate("window.hacked === undefined"), "the policy lets scripts run"
    assert any("Content Security Policy" in c for c in browser.complaints()), browser.complaints()
    assert any(c.startswith("Loading the image") for c in browser.complaints()), browser.complaints()


def check_many(browser, folder):
    steps = [r for r in stored() if r["command"] == "bench step" and "p50_ms" in r]
    rows = []
    for i in range(1000):
        row = timed(dict(steps[i % len(steps)]))
        row["ctx"] = 16 + i
        rows.append(row)
    begin = time.monotonic()
    page = report(folder, rows)
    print(f"1,000 runs: made in {time.monotonic() - begin:.1f} s, {os.path.getsize(page) / 1e6:.2f} MB", end=", ")
    assert os.path.getsize(page) < 5e6
    browser.open("/dev/null")
    took = min(browser.open(page) for _ in range(3))  # what else this machine does is not the page's
    print(f"opens in {took:.2f} s")
    assert took < 2, f"it opens in {took:.2f} s"


def main():
    chromium.program()
    with tempfile.TemporaryDirectory() as folder, chromium.Browser() as browser:
        page = report(folder, [timed(r) if "p50_ms" in r else r for r in stored()])
        assert os.path.getsize(page) < 2e6
        print(f"report of {len(stored())} rows: {os.path.getsize(page) / 1e3:.0f} kB, opens in {check_page(browser, page):.2f} s")
        check_colours(browser, page)
        check_policy(browser, folder, page)
        check_hostile(browser, folder)
        check_many(browser, folder)


if __name__ == "__main__":
    main()
