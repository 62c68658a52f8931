"""The package installs by pip from the tree, without a network, and finds what it should. Needs setuptools."""
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PYTHON = Path(__file__).resolve().parent.parent.parent / "python"


def can_build():
    return all(importlib.util.find_spec(name) for name in ("pip", "setuptools", "wheel"))


@unittest.skipUnless(can_build(), "pip, setuptools or wheel is not installed for this Python")
class PipInstall(unittest.TestCase):
    def test_installs_and_imports(self):
        with tempfile.TemporaryDirectory() as folder:
            source, target = Path(folder) / "source", Path(folder) / "target"
            shutil.copytree(PYTHON, source)  # pip leaves a build folder behind
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-index", "--no-deps"]
            got = subprocess.run([*pip, "--target", target, source], capture_output=True, text=True)
            self.assertEqual(got.returncode, 0, got.stderr)
            program = "import kiln; print(kiln.__version__, kiln.__file__)"
            got = subprocess.run([sys.executable, "-c", program], cwd=folder, env={"PYTHONPATH": str(target)},
                                 capture_output=True, text=True)
            self.assertEqual(got.returncode, 0, got.stderr)
            version, file = got.stdout.split()
            self.assertIn(f'version = "{version}"', (PYTHON / "pyproject.toml").read_text())
            self.assertTrue(Path(file).is_relative_to(target), file)


if __name__ == "__main__":
    unittest.main()
