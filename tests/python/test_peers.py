"""The rows of the peers' scripts, without PyTorch: what they store is what `kiln report --peers` joins with kiln's rows."""
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench/peers"))
sys.dont_write_bytecode = True

import peer_rows  # noqa: E402
import torch_attention  # noqa: E402
import torch_step  # noqa: E402

HOST = {"device_name": "Card", "load": 0.5}
ORDER = {"size": "small", "mode": "graph", "dtype": "bf16", "policy": "master", "batch": 4, "ctx": 512, "vocab": 10000,
         "warmup": 5, "steps": 3}  # fmt: skip
ANSWER = {"ms": [6.0, 5.0, 7.0], "peak": 3 << 30, "reserved": 4 << 30, "first_s": 26.5, "loss": 9.2, "torch": "2.11.0",
          "gate": {"gate": "passed", "relative_error": 0.01, "allowed_error": 0.2, "worst_tensor": "head.weight"}}  # fmt: skip
VERSION = "PyTorch 2.11.0, cuDNN 9.19.0"


def kiln_row(peer, ms):
    """As kiln stores the same measurement."""
    row = {key: value for key, value in peer.items() if not key.startswith("peer")}
    return dict(row, gate="passed", status="ok", preset="optimized", p50_ms=ms, build_id="abc")


class Steps(unittest.TestCase):
    def row(self, **changed):
        return torch_step.stored_row(ORDER, dict(ANSWER, **changed), VERSION, HOST)

    def test_a_row_has_what_was_measured_and_every_sample(self):
        row = self.row()
        self.assertEqual((row["command"], row["status"], row["gate"]), ("bench step", "ok", "passed"))
        self.assertEqual((row["p50_ms"], row["raw_samples"], row["samples"]), (6.0, [6.0, 5.0, 7.0], 3))
        self.assertEqual((row["peer"], row["peer_variant"], row["peer_version"]), ("PyTorch", "graph", VERSION))
        self.assertEqual((row["mode"], row["micro_steps"], row["clip"]), ("full", 1, 0))
        self.assertEqual((row["peak_bytes"], row["first_step_ms"]), (3 << 30, 26500))
        self.assertAlmostEqual(row["tflops"], torch_step.model_flops("small", 4, 512, 10000) / 6e9)

    def test_failures_are_rows_in_their_own_words(self):
        for status in ("timeout", "oom", "failed"):
            row = torch_step.stored_row(ORDER, {"error": "why", "status": status}, VERSION, HOST)
            self.assertEqual((row["status"], row["gate"], row["reason"]), (status, "not-verified", "why"))
            self.assertNotIn("p50_ms", row)
        self.assertEqual(self.row(gate={"gate": "failed", "relative_error": None})["status"], "failed")
        self.assertNotIn("relative_error", self.row(gate={"gate": "failed", "relative_error": None}))

    def test_packed_projections_fall_into_the_naive_models_parts(self):
        class Rows(list):
            def split(self, n):
                return [self[i : i + n] for i in range(0, len(self), n)]

        c, f = torch_step.SIZES["small"][:2]
        parts = torch_step.unpacked(
            {"blocks.0.qkv.weight": Rows(range(3 * c)), "blocks.0.gate_up.weight": Rows(range(2 * f)), "norm.weight": "n"},
            "small")  # fmt: skip
        self.assertEqual([len(parts["blocks.0.%s.weight" % n]) for n in ("q", "k", "v", "gate", "up")], [c, c, c, f, f])
        self.assertEqual((parts["blocks.0.v.weight"][0], parts["blocks.0.up.weight"][0]), (2 * c, f))
        self.assertEqual(parts["norm.weight"], "n")

    def test_the_checked_model_has_two_blocks(self):
        whole, checked = torch_step.param_count("small", 100), torch_step.param_count("small", 100, 2)
        c, f, layers, _ = torch_step.SIZES["small"]
        self.assertEqual(whole - checked, (layers - 2) * (4 * c * c + 3 * c * f + 2 * c))


class Attention(unittest.TestCase):
    CELL = torch_attention.cell(4, 12, 512, 64, "bf16", True, True)

    def rows(self, **answer):
        row = dict(self.CELL, backend="cudnn+stack", **answer)
        return torch_attention.stored_rows("steps", row, torch_attention.PASSES, VERSION, HOST)

    def timed(self):
        ms = {"forward": 0.02, "backward": 0.04, "both": 0.05}
        return self.rows(ms=ms, how={p: "graph" for p in ms}, samples={p: [v] * 3 for p, v in ms.items()},
                         checked={"relative_error": 0.002, "checked_shape": {"seq": 512}})  # fmt: skip

    def test_a_line_for_each_pass(self):
        rows = self.timed()
        self.assertEqual([r["pass"] for r in rows], ["forward", "backward", "both"])
        self.assertEqual({(r["peer"], r["peer_variant"], r["gate"]) for r in rows}, {("cuDNN", "gradients gathered", "passed")})
        self.assertEqual((rows[1]["p50_ms"], rows[1]["raw_samples"]), (0.04, [0.04] * 3))

    def test_refusals_crashes_and_wrong_results_are_different_words(self):
        words = [(r["status"], r["gate"]) for r in (
            self.rows(error="No available kernel")[0], self.rows(error="dq is off by 1.0e+00")[0],
            self.rows(error="out of memory: x", status="oom")[0], self.rows(error="exit status 11", status="failed")[0])]  # fmt: skip
        self.assertEqual(words, [("unsupported", "not-verified"), ("failed", "failed"), ("oom", "not-verified"),
                                 ("failed", "not-verified")])  # fmt: skip


class Joined(unittest.TestCase):
    def report(self, rows, peers, *more):
        with tempfile.TemporaryDirectory() as folder:
            peer_rows.append(folder + "/kiln.jsonl", rows)
            peer_rows.append(folder + "/peers.jsonl", peers)
            command = [os.environ["KILN_PROGRAM"], "report", "--rows", folder + "/kiln.jsonl", "--peers",
                       folder + "/peers.jsonl", "--format", "md", *more]  # fmt: skip
            return subprocess.run(command, capture_output=True, text=True)

    def test_steps_and_attention_meet_kilns_rows(self):
        step = torch_step.stored_row(ORDER, ANSWER, VERSION, HOST)
        done = self.report([kiln_row(step, 4.0)], [step], "--columns", "size,kiln_ms,peer_ms,ratio")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| small | 4 | 6 | 1.50x |", done.stdout)
        peers = Attention().timed()
        done = self.report([kiln_row(r, 0.01) for r in peers], peers, "--columns", "sizes,peer,both_ratio")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| 4x12x512x64 | cuDNN gradients gathered | 5.00x |", done.stdout)

    def test_a_peer_without_a_gate_enters_no_table(self):
        step = torch_step.stored_row(ORDER, dict(ANSWER, gate={"gate": "not-verified"}), VERSION, HOST)
        done = self.report([kiln_row(step, 4.0)], [step])
        self.assertEqual(done.returncode, 1)
        self.assertIn("not-verified", done.stderr)


class Facts(unittest.TestCase):
    def test_nvidia_smi_that_is_not_there_is_no_error(self):
        path, os.environ["PATH"] = os.environ["PATH"], "/nowhere"
        try:
            self.assertEqual(peer_rows.gpu_state(), {})
        finally:
            os.environ["PATH"] = path

    def test_nvidia_smi_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            tool = Path(folder) / "nvidia-smi"
            tool.write_text("#!/bin/sh\ncase \"$*\" in *pid*) echo 12;; *) echo '580.159, 1980, [N/A], 41, 7';; esac\n")
            tool.chmod(0o755)
            path, os.environ["PATH"] = os.environ["PATH"], folder + ":" + os.environ["PATH"]
            try:
                self.assertEqual(peer_rows.gpu_state(), {"driver": "580.159", "sm_clock_mhz": 1980.0, "temperature_c": 41.0,
                                                         "utilization_percent": 7.0, "processes": 1})  # fmt: skip
            finally:
                os.environ["PATH"] = path

    def test_what_is_not_known_is_left_out(self):
        row = peer_rows.row("bench step", {}, ("p", "", "v"), HOST, reason=None)
        self.assertNotIn("reason", row)
        self.assertEqual(json.loads(json.dumps(row))["host"], HOST)


if __name__ == "__main__":
    unittest.main()
