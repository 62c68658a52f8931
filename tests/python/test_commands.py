"""kiln's commands as functions: rows as the program stores them, and its errors as exceptions."""
import os
import tempfile
import unittest

import kiln


def records(rows):
    return rows if isinstance(rows, list) else rows.to_dict("records")


@unittest.skipUnless(os.environ.get("KILN_PROGRAM"), "KILN_PROGRAM names no program")
class Commands(unittest.TestCase):
    def setUp(self):
        os.environ["KILN"] = os.environ["KILN_PROGRAM"]
        self.folder = tempfile.TemporaryDirectory()
        self.out = self.folder.name

    def tearDown(self):
        self.folder.cleanup()

    def test_rows_and_the_report_of_them(self):
        rows = records(kiln.bench_step(size=["nano"], ctx=16, batch=1, dtype=["fp32", "bf16"], steps=2, warmup=1, device="cpu",
                                       out=self.out))
        self.assertEqual([r["dtype"] for r in rows], ["fp32", "bf16"])
        self.assertTrue(all(r["p50_ms"] > 0 for r in rows))
        said = kiln.report(out=self.out)
        self.assertEqual(said["rows"], 2)
        self.assertTrue(os.path.exists(said["files"][1]))

    def test_flags_and_documents_without_a_clock(self):
        sums = records(kiln.precision("accumulate", count=100, out=self.out))
        self.assertIn("fp16 += fp16", [r["label"] for r in sums])
        document = kiln.run("bench", "step", size="nano", dry_run=False, help=False, ctx=16, steps=1, warmup=0, batch=1,
                            device="cpu", out=self.out)
        self.assertEqual(document["command"], "bench step")

    def test_mistakes_are_exceptions_with_the_programs_words(self):
        with self.assertRaisesRegex(kiln.BadArgument, "did you mean 'nano'"):
            kiln.bench_step(size="nanno", out=self.out)
        with self.assertRaises(kiln.NotAvailable):
            kiln.bench_step(size="nano", device="cuda:9999", out=self.out)
        with self.assertRaisesRegex(kiln.KilnError, "no stored rows"):
            kiln.report(out=self.out + "/none")

    def test_a_program_that_is_not_there(self):
        os.environ["KILN"] = "/nonexistent/kiln"
        with self.assertRaises(OSError):
            kiln.run("sizes")


if __name__ == "__main__":
    unittest.main()
