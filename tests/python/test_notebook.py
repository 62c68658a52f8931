"""notebooks/study.ipynb runs from its first cell to its last, and has a picture and tables at the end."""
import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = "/usr/bin/python3"  # the system's own, for which tools/install.sh notebook installs
NEEDS = ("nbconvert", "ipykernel", "pandas", "matplotlib")


def missing():
    if not os.access(PYTHON, os.X_OK):
        return PYTHON
    return next((m for m in NEEDS if subprocess.run([PYTHON, "-c", f"import {m}"], capture_output=True).returncode != 0), None)


@unittest.skipUnless(os.environ.get("KILN_PROGRAM"), "KILN_PROGRAM names no program")
class Notebook(unittest.TestCase):
    @unittest.skipIf(missing(), f"no {missing()}; tools/install.sh notebook installs it")
    def test_runs_from_beginning_to_end(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = dict(os.environ, KILN=os.environ["KILN_PROGRAM"], KILN_NOTEBOOK_OUT=folder + "/runs",
                               JUPYTER_DATA_DIR=folder, IPYTHONDIR=folder)
            done = subprocess.run([PYTHON, "-m", "nbconvert", "--to", "notebook", "--execute", "--ExecutePreprocessor.timeout=300",
                                   "--ExecutePreprocessor.kernel_name=python3", "--output-dir", folder, str(ROOT / "notebooks/study.ipynb")],
                                  capture_output=True, text=True, env=environment, timeout=500)
            self.assertEqual(done.returncode, 0, done.stderr[-2000:])
            cells = json.loads(Path(folder, "study.ipynb").read_text())["cells"]
            outputs = [o for c in cells if c["cell_type"] == "code" for o in c["outputs"]]
            self.assertFalse([o for o in outputs if o["output_type"] == "error"])
            kinds = [kind for o in outputs for kind in o.get("data", {})]
            self.assertGreaterEqual(kinds.count("image/png"), 2, "pictures of times and precisions")
            self.assertGreaterEqual(kinds.count("text/html"), 5, "a table each")
            self.assertTrue(Path(folder, "runs/report.html").exists())

    def test_is_kept_without_outputs(self):
        for cell in json.loads((ROOT / "notebooks/study.ipynb").read_text())["cells"]:
            self.assertFalse(cell.get("outputs"), "outputs are the reader's own")


if __name__ == "__main__":
    unittest.main()
