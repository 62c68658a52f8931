"""Files of kiln tune, as it writes them for a GPU. Here is none, but a run that was begun on one and is resumed on the CPU
reads the file all the same, says whose it is, and refuses one that is broken. (What is in them is compared by
tune_file_golden_test.cpp.) They are not made by a program: `make` leaves them as they are."""
import shutil

import common

FILES = ["tune/gemm.json", "tune/attention.json"]
WORDS = ["train", "--model", "model.json", "--text", "text.txt", "--tokenizer", "byte", "--batch", 1, "--context", 8,
         "--held-out", 0, "--sample-tokens", 0, "--threads", 1, "--device", "cpu", "--out", "run"]


def make(_program):
    return "left as they are: they need a GPU"


def check(program, report):
    with common.TempFolder() as folder:
        for file in (common.MODEL, common.TEXT):
            shutil.copy(file, folder)
        program.run(*WORDS, "--steps", 1, cwd=folder)
        kept = folder / "run" / "gemm.json"
        steps = 1
        for file in FILES:
            steps += 1
            shutil.copyfile(common.HERE / file, kept)
            said = program.run(*WORDS, "--steps", steps, cwd=folder).stderr
            report.expect("NVIDIA H200" in said, f"{file}: not said whose it is: {said.strip()[-300:]}")
        # So that the above shows something: the file is read, not passed over.
        kept.write_text(kept.read_text().replace('"choices"', '"chioces"'))
        said = program.run(*WORDS, "--steps", steps + 1, cwd=folder, status=1).stderr
        report.expect("gemm.json" in said, f"a broken file: {said.strip()[-300:]}")
