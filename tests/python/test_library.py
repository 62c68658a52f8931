"""Finding and loading libkiln.so, and a small case on the CPU through ctypes alone. Needs no torch and no GPU."""
import ctypes
import math
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import kiln
from kiln import _library
from kiln._library import CPU, FP32, Problem, View


class Finding(unittest.TestCase):
    def test_a_named_library_that_is_not_there_is_an_error(self):
        with self.assertRaisesRegex(kiln.NotAvailable, "/nowhere/libkiln.so"):
            kiln.load("/nowhere/libkiln.so")
        with mock.patch.dict(os.environ, {"KILN_LIBRARY": "/nowhere/else.so"}):
            with self.assertRaisesRegex(kiln.NotAvailable, "KILN_LIBRARY names /nowhere/else.so"):
                kiln.load()

    def test_without_any_it_says_where_it_looked(self):
        with mock.patch.dict(os.environ), mock.patch.object(_library, "candidates", lambda: [Path("/a/libkiln.so")]):
            os.environ.pop("KILN_LIBRARY", None)
            with self.assertRaisesRegex(kiln.NotAvailable, "/a/libkiln.so.*make cuda"):
                kiln.load()

    def test_the_argument_comes_before_the_environment(self):
        with tempfile.TemporaryDirectory() as folder:
            asked, other = Path(folder, "asked.so"), Path(folder, "other.so")
            asked.touch()
            other.touch()
            with mock.patch.dict(os.environ, {"KILN_LIBRARY": str(other)}):
                self.assertEqual(_library.find_library(str(asked)), str(asked))
                self.assertEqual(_library.find_library(), str(other))

    def test_a_file_that_is_no_library(self):
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            with self.assertRaisesRegex(kiln.NotAvailable, "no libkiln that can be loaded"):
                kiln.load(file.name)


def aligned(count, align=64):
    """A ctypes array of floats on an aligned address; the second value keeps it alive."""
    memory = (ctypes.c_char * (4 * count + align))()
    start = -(-ctypes.addressof(memory) // align) * align
    return (ctypes.c_float * count).from_address(start), memory


class Loaded(unittest.TestCase):
    def setUp(self):
        try:
            self.loaded = kiln.load()
        except kiln.NotAvailable as error:
            self.skipTest(str(error))

    def test_only_the_interface_is_visible(self):
        nm = shutil.which("nm")
        if nm is None:
            self.skipTest("nm was not found")
        listing = subprocess.run([nm, "-D", "--defined-only", self.loaded.path], check=True, capture_output=True, text=True)
        names = {line.split()[-1].split("@")[0] for line in listing.stdout.splitlines()}
        header = (Path(__file__).resolve().parents[2] / "include" / "kiln" / "attention.h").read_text()
        self.assertTrue(names)
        for name in names:
            self.assertTrue(name.startswith("kiln_"), name)
            self.assertIn(name + "(", header)

    def test_it_needs_nothing_unusual(self):
        ldd = shutil.which("ldd")
        if ldd is None:
            self.skipTest("ldd was not found")
        listing = subprocess.run([ldd, self.loaded.path], check=True, capture_output=True, text=True).stdout
        names = {Path(line.split()[0]).name.split(".so")[0] for line in listing.splitlines()}
        usual = {"linux-vdso", "libstdc++", "libm", "libgcc_s", "libc", "libdl", "libpthread", "librt", "ld-linux-x86-64"}
        self.assertLessEqual(names, usual)

    def problem(self, **changed):
        fields = dict(dtype=FP32, batch=1, queries=3, keys=3, heads=1, kv_heads=1, head_dim=4, causal=1)
        return Problem(**{**fields, **changed})

    def test_version(self):
        self.assertRegex(self.loaded.version, r"^\d+\.\d+\.\d+ \(.+\)$")

    def test_a_small_case_on_the_cpu(self):
        problem = self.problem()
        arrays = {name: aligned(12) for name in "qkvo"}
        for n, name in enumerate("qkv"):
            for i in range(12):
                arrays[name][0][i] = math.sin(1.0 + 5 * n + i)
        lse, keep = aligned(3)
        size, _ = self.loaded.workspace(CPU, problem)
        scratch, keep_scratch = aligned(size // 4 + 1, 256)
        views = [View(ctypes.addressof(arrays[name][0]), 12, 4, 4) for name in "qkvo"]
        self.loaded.forward(CPU, problem, *views, ctypes.addressof(lse), ctypes.addressof(scratch), size, None)
        q, k, v, o = ([arrays[name][0][4 * t : 4 * t + 4] for t in range(3)] for name in "qkvo")
        for i in range(3):
            weights = [math.exp(0.5 * sum(a * b for a, b in zip(q[i], k[j]))) for j in range(i + 1)]
            self.assertAlmostEqual(lse[i], math.log(sum(weights)), places=5)
            for c in range(4):
                wanted = sum(w * v[j][c] for j, w in enumerate(weights)) / sum(weights)
                self.assertAlmostEqual(o[i][c], wanted, places=5)

    def test_refusals_carry_status_and_reason(self):
        with self.assertRaisesRegex(kiln.BadArgument, "head_dim is 300; 256 is the most") as caught:
            self.loaded.variant(CPU, self.problem(head_dim=300))
        self.assertEqual(caught.exception.status, _library.BAD_ARGUMENT)
        with self.assertRaisesRegex(kiln.NotAvailable, "lse"):
            self.loaded.variant(CPU, self.problem(variant=b"naive"))
        with self.assertRaisesRegex(kiln.BadArgument, "no variant 'flush'.*did you mean 'flash'"):
            self.loaded.variant(CPU, self.problem(variant=b"flush"))
        with self.assertRaises(kiln.KilnError):
            self.loaded.workspace(31000, self.problem())


if __name__ == "__main__":
    unittest.main()
