#!/usr/bin/env python3
"""usage: cuda_function_lines.py ROOT

Fails where a host function of a .cu or .cuh file has more than 60 lines: clang-tidy, which holds that elsewhere
(readability-function-size), does not read these. Kernels and device functions may be longer."""
import re
import sys
from pathlib import Path

MOST = 60
NO_FUNCTION = re.compile(r"\s*(namespace|struct|class|enum|union|extern|using|#|//)")


def long_functions(text):
    """(line, lines, head) of each function at the left margin whose body has too many lines."""
    head, begun, depth = [], None, None
    for number, line in enumerate(text.splitlines(), 1):
        if begun is not None:
            if line.startswith("}"):
                if number - begun - 1 > MOST and not re.search(r"__(global|device)__", " ".join(depth)):
                    yield begun, number - begun - 1, " ".join(depth)
                begun = None
            continue
        if not line.strip() or line.startswith(("}", "#", "//")) or line.rstrip().endswith(";"):
            head = []
            continue
        head.append(line.strip())
        joined = " ".join(head)
        if line.rstrip().endswith("{"):
            body = re.sub(r"^template <.*?> (?=\w)", "", joined)
            if not NO_FUNCTION.match(body) and "(" in body:
                begun, depth = number, list(head)
            head = []


def plant():
    """A long host function is found, a long kernel and a short function are not."""
    filler = "  f();\n" * (MOST + 1)
    assert [head for _, _, head in long_functions("template <class T>\nvoid run(int a,\n         int b) {\n" + filler + "}\n")]
    assert not list(long_functions("__global__ void kernel(int a) {\n" + filler + "}\n"))
    assert not list(long_functions("void run() {\n" + "  f();\n" * MOST + "}\n"))
    assert not list(long_functions("namespace kiln {\n" + filler + "}  // namespace kiln\n"))


def main(root):
    plant()
    files = sorted(p for folder in ("src", "tests", "bench", "apps") for p in (Path(root) / folder).rglob("*.cu*"))
    if len(files) < 50:
        sys.exit(f"only {len(files)} CUDA files below {root}")
    found = [f"{path}:{line}: {count} lines, at most {MOST}: {head}"
             for path in files for line, count, head in long_functions(path.read_text())]
    if found:
        sys.exit("\n".join(found))
    print(f"no host function of {len(files)} CUDA files has more than {MOST} lines")


if __name__ == "__main__":
    main(*sys.argv[1:])
