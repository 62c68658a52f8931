"""Pages and charts made of rows whose words are markup, read by parsers: Python's html.parser and its XML reader (expat). They
see what elements, attributes and texts there are; what a browser makes of the page's script they do not."""
import csv
import io
import json
import os
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path

HERE = Path(__file__).resolve().parent
KILN = os.environ.get("KILN_PROGRAM", "")
HOSTILE = "x</text><script>alert(1)</script><a href=\"javascript:1\" onclick='2'>|`[l](http://e.example)&amp;\n# h \x1b[31m=1+1"
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
DRAWN = {"svg", "rect", "text", "line", "circle", "polygon", "polyline", "path", "g", "title", "defs", "pattern", "style"}


def kiln(*words):
    done = subprocess.run([KILN, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{words}: status {done.returncode}: {done.stderr}")
    return done.stdout


def hostile_rows(folder):
    """The rows that earlier builds stored, with other words wherever a row quotes its machine or its user."""
    lines = (HERE.parent / "goldens/results.jsonl").read_text().splitlines()
    with open(folder / "results.jsonl", "w") as file:
        for line in lines:
            row = json.loads(line)
            row.update({key: HOSTILE for key in ("build_id", "device", "size", "time") if key in row})
            row.update(host={"device_name": HOSTILE, "isa": HOSTILE, "threads": 1}, status="ok", gate="passed")
            file.write(json.dumps(row) + "\n")


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.now = [], {}, None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.now = len(self.elements) - 1

    def handle_data(self, data):
        if self.now is not None:
            self.texts[self.now] = self.texts.get(self.now, "") + data

    def named(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


class HostileRows(unittest.TestCase):
    def assert_harmless(self, svg):
        for element in ElementTree.fromstring(svg).iter():
            self.assertIn(element.tag.rpartition("}")[2], DRAWN)
            for name, value in element.attrib.items():
                self.assertFalse(name.startswith("on") or "href" in name, name)
                self.assertNotIn("script", value)

    def test_a_report_draws_them_as_text(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            hostile_rows(folder)
            kiln("report", "--from", folder, "--out", folder / "page")
            charts = sorted((folder / "page/report").glob("*.svg"))
            self.assertGreaterEqual(len(charts), 3, "ablations, steps and memory")
            shown = ""
            for chart in charts:
                text = chart.read_text()
                self.assert_harmless(text)
                shown += "".join(ElementTree.fromstring(text).itertext())
            self.assertIn("<script>alert(1)</script>", shown, "the words are shown, as words")

    def test_csv_reads_back_as_cells(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            row = {"command": "bench step", "status": "ok", "gate": "passed", "size": "=cmd|' /C calc'!A0", "dtype": HOSTILE,
                   "p50_ms": 1.5, "device": "cpu"}  # fmt: skip
            (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
            said = kiln("report", "--rows", folder / "rows.jsonl", "--format", "csv")
            (line,) = csv.DictReader(io.StringIO(said))
            self.assertEqual(line["size"], "'=cmd|' /C calc'!A0")
            self.assertEqual((line["dtype"], line["p50_ms"]), (HOSTILE, "1.5"))
            for form in ("table", "md", "latex"):
                self.assertNotIn("\x1b", kiln("report", "--rows", folder / "rows.jsonl", "--format", form))

    def test_the_memory_page_and_its_chart(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            model = folder / "<img src=x onerror=alert(1)>"
            kiln("convert", "--random", "nano", "--to", model)
            kiln("memory", "--model", model, "--ctx", 16, "--batch", 1, "--device", "meta", "--export", "html,svg", "--out", folder)
            pages, charts = sorted(folder.rglob("*.html")), sorted(folder.rglob("*.svg"))
            self.assertTrue(pages and charts)
            for chart in charts:
                self.assert_harmless(chart.read_text())
            for html in pages:
                self.assert_page_is_closed(Page(html.read_text()))

    def assert_page_is_closed(self, page):
        policies = [m["content"] for m in page.named("meta") if m.get("http-equiv") == "Content-Security-Policy"]
        self.assertEqual(policies, [POLICY])
        order = [tag for tag, _ in page.elements]
        before = [a for a in page.elements[: order.index("style")] if a[0] == "meta" and "http-equiv" in a[1]]
        self.assertTrue(before, "a policy holds for what comes after it")
        self.assertFalse(page.named("img") or page.named("a") or page.named("link"), "nothing that asks for a file")
        self.assertEqual(len(page.named("script")), 3)
        for _, attributes in page.elements:
            self.assertFalse([n for n in attributes if n.startswith("on") or n in ("src", "href")], attributes)
        head = next(i for i, (tag, a) in enumerate(page.elements) if tag == "script" and a.get("id") == "head")
        self.assertGreater(json.loads(page.texts[head])["events"], 0)


if __name__ == "__main__":
    unittest.main()
