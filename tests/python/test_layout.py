"""The structs of python/kiln against those of the C header, field by field. Needs neither the library nor torch."""
import ctypes
import os
import subprocess
import unittest

from kiln import _library


@unittest.skipUnless(os.environ.get("KILN_ABI_LAYOUT"), "KILN_ABI_LAYOUT is not set")
class Layout(unittest.TestCase):
    def test_every_field_lies_where_c_has_it(self):
        printed = subprocess.run([os.environ["KILN_ABI_LAYOUT"]], check=True, capture_output=True, text=True).stdout
        in_c = {}
        for line in printed.splitlines():
            struct, field, offset, size = line.split()
            in_c.setdefault(struct, []).append((field, int(offset), int(size)))
        self.assertEqual(in_c.pop("KILN_ABI_VERSION"), [("-", 0, _library.ABI_VERSION)])
        for name, ours in (("kiln_attention_problem", _library.Problem), ("kiln_attention_view", _library.View)):
            fields = [(f, getattr(ours, f).offset, getattr(ours, f).size) for f, _ in ours._fields_]
            self.assertEqual(in_c.pop(name), fields + [("-", 0, ctypes.sizeof(ours))])
        self.assertEqual(in_c, {})


if __name__ == "__main__":
    unittest.main()
