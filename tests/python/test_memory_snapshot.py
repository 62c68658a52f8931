"""The snapshot of kiln memory, loaded as PyTorch loads its own. KILN_PROGRAM names the program."""
import json
import os
import pickle
import subprocess
import tempfile
import unittest
from pathlib import Path

PROGRAM = os.environ.get("KILN_PROGRAM")


@unittest.skipUnless(PROGRAM, "KILN_PROGRAM is not set")
class Snapshot(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        command = [PROGRAM, "memory", "--size", "nano", "--ctx", "64", "--phase", "full", "--device", "meta", "--export",
                   "pickle,json", "--out", cls.folder.name, "--json"]
        # Not KILN_ALLOC=raw, whose blocks are smaller than what is counted for them: blocks fill a segment exactly.
        environment = {**os.environ, "KILN_ALLOC": "caching"}
        run = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        cls.page = json.loads(run.stdout)
        files = [Path(f) for f in cls.page["rows"][0]["files"]]
        cls.pickle_file = next(f for f in files if f.suffix == ".pickle")
        cls.snapshot = pickle.loads(cls.pickle_file.read_bytes())
        cls.as_json = json.loads(next(f for f in files if f.suffix == ".json").read_text())

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_pickle_and_json_say_the_same(self):
        self.assertEqual(json.loads(json.dumps(self.snapshot)), self.as_json)

    def test_replaying_it_gives_the_peak(self):
        in_use = most = 0
        for event in self.snapshot["device_traces"][0]:
            in_use += {"alloc": 1, "free_completed": -1}.get(event["action"], 0) * event["size"]
            most = max(most, in_use)
        self.assertEqual(most, self.page["rows"][0]["predicted_peak_bytes"])
        left = sum(b["size"] for s in self.snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated")
        self.assertEqual(left, in_use)

    def test_what_memory_held_when_it_ran_out(self):
        folder = Path(self.folder.name)
        (folder / "text").write_text("the cat sat on the mat and the dog on the log\n" * 60)
        file = folder / "oom.pickle"
        command = [PROGRAM, "train", "--text", str(folder / "text"), "--out", str(folder / "run"), "--size", "nano", "--steps",
                   "2", "--batch", "2", "--ctx", "16", "--device", "cpu", "--oom-snapshot", str(file), "--inject",
                   "oom:step=2,call=60"]
        run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "KILN_ALLOC": "caching"})
        self.assertEqual(run.returncode, 1, run.stderr)
        said = [line for line in run.stderr.splitlines() if line.startswith("kiln: ")]
        self.assertEqual(len(said), 1, run.stderr)
        self.assertIn(str(file), said[0])
        snapshot = pickle.loads(file.read_bytes())
        self.assertEqual(snapshot["device_traces"][0][-1]["action"], "oom")
        for segment in snapshot["segments"]:
            self.assertEqual(sum(b["size"] for b in segment["blocks"]), segment["total_size"])
        held = [b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
        self.assertGreater(len(held), 5)
        largest = max(held, key=lambda b: b["size"])
        self.assertIn(largest["user_metadata"].split("[")[1].rstrip("]"), said[0].split("largest tensors: ")[1])

    def test_pytorch_reads_it(self):
        try:
            from torch.cuda import _memory_viz
        except ImportError:
            self.skipTest("no torch here")
        text = _memory_viz.trace(self.snapshot)
        events = self.snapshot["device_traces"][0]
        of_kind = lambda action: sum(e["action"] == action for e in events)
        self.assertIn(f"{len(events)} entries", text)
        self.assertEqual(text.count("cudaMalloc("), of_kind("segment_alloc"))
        self.assertEqual(text.count("# free completed for"), of_kind("free_completed"))
        self.assertGreater(of_kind("alloc"), 100)
        page = _memory_viz.trace_plot(self.snapshot)
        self.assertIn("Active Memory Timeline", page)
        self.assertTrue(_memory_viz.segment_plot(self.snapshot))
        self.assertTrue(_memory_viz.segsum(self.snapshot))


if __name__ == "__main__":
    unittest.main()
