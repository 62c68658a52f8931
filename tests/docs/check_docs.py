#!/usr/bin/env python3
"""usage: check_docs.py KILN [ROOT]

Fails where a page names what is not there: a file, an identifier, a heading, a command, an option; where code it shows is
not that of the sources (tools/docs_code.py puts it right); and where tests/docs/commands.txt excuses what no page shows."""
import fnmatch
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pages

sys.path.insert(0, str(pages.ROOT / "tools"))
import docs_code  # noqa: E402

FOLDERS = "src|apps|tests|docs|tools|cmake|include|examples|python|bench|fuzz"
SOURCE_NAME = re.compile(r"[\w./*-]+\.(?:h|c|cpp|cu|cuh|sh|py|cmake|txt)\Z")
# The same in running text and in drawings. A name with <...>, {...} or * before it is a placeholder or a pattern.
BARE_NAME = re.compile(r"(?<![\w./<>{},*$-])[\w./-]*\w\.(?:h|cpp|cu|cuh|sh|py|cmake)\b(?![\w/])")


class Program:
    """What kiln --help and its like say: commands, sub-commands and options."""

    def __init__(self, path):
        self.path = path
        self.texts = {}

    def help(self, words):
        words = tuple(words)
        if words not in self.texts:
            got = subprocess.run([self.path, *words, "--help"], capture_output=True, text=True, check=True)
            self.texts[words] = got.stdout
        return self.texts[words]

    def section(self, words, title):
        lines, on = [], False
        for line in self.help(words).splitlines():
            if line and not line.startswith(" "):
                on = line.startswith(title)
            elif on and re.match(r"  \S", line):
                lines.append(line.split()[0])
        return lines

    def subs(self, words):
        return self.section(words, "Subcommands:" if words else "Commands:")

    def options(self, words):
        """Those of a command; those of every command, for no words."""
        if not words:
            return {"--help", "--version", "--study"} | set(re.findall(r"--[a-z][\w-]*", self.help(())))
        return {name for field in self.section(words, "Options:") for name in field.split(",")}

    def all_options(self):
        found, todo = set(self.options([])), [[name] for name in self.subs([])]
        while todo:
            words = todo.pop()
            found |= self.options(words)
            todo += [words + [sub] for sub in self.subs(words)]
        return found

    def problem(self, words):
        """What is wrong with `kiln WORDS...`, or nothing."""
        path, i = [], 0
        while i < len(words):
            word = words[i]
            i += 1
            if word == "--":
                return self.problem(words[i:])
            if word.startswith("--"):
                name = word.partition("=")[0]
                if path and not any(name in self.options(path[:n]) for n in range(len(path) + 1)):
                    return f"kiln {' '.join(path)} has no option {name}"
            elif word in self.subs(path) and len(path) < 2:
                path.append(word)
            elif not path and word in ("help", "completions", "man"):
                return None  # what follows is no command's own
            elif not path and not word[:1].isupper():
                return f"there is no command 'kiln {word}'"
        return None


def slug(heading):
    """A heading as GitHub names it in links."""
    text = re.sub(r"[`*]|\[([^]]*)\]\([^)]*\)", r"\1", heading.lstrip("#").strip()).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def check_links(page, root):
    for number, line in pages.prose(page):
        for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"", line):
            name, _, anchor = (target[0] or target[1]).partition("#")
            if "://" in name or name.startswith("mailto:"):
                continue
            file = (page.parent / name).resolve() if name else page
            if not file.exists():
                yield number, f"links to {name}, which does not exist"
            elif anchor and anchor not in {slug(text) for _, text in pages.prose(file) if text.startswith("#")}:
                yield number, f"links to {name}#{anchor}; there is no such heading"


def expanded(name):
    """a/{b,c} is a/b and a/c."""
    match = re.search(r"\{([^{}]*)\}", name)
    if not match:
        return [name]
    return [n for part in match.group(1).split(",") for n in expanded(name[: match.start()] + part + name[match.end() :])]


def names_a_file(name, files):
    """By the end of its path: `hopper/hopper.cu` and `hopper.cu` are both src/ops/attention/hopper/hopper.cu."""
    return any(fnmatch.fnmatch(file, "*/" + name) for file in files)


def bare_names(page):
    """(line number, name) of source files in headings, running text and drawings, in `code` style or not."""
    drawn = [(f.line + i, text) for f in pages.fences(page) if not f.language for i, text in enumerate(f.lines)]
    for number, line in [*pages.prose(page), *drawn]:
        line = re.sub(r"<!--.*?-->|\]\([^)]*\)|\bhttps?://\S+", " ", line)
        if not pages.COMMAND.match(line.removeprefix("$ ")):
            yield from ((number, name) for name in BARE_NAME.findall(line))


def check_paths(page, root, files):
    """Files and folders: by their path, or files by its end."""
    for number, name in bare_names(page):
        if not names_a_file(name, files):
            yield number, f"names {name}; there is no such file"
    for number, line in pages.prose(page):
        for text in re.findall(r"`([^`]+)`", line):
            if re.search(r"[<>$ ()]|\bNAME\b", text):
                continue
            for name in expanded(text):
                if re.match(rf"(?:{FOLDERS})/", name):
                    if not list(root.glob(name.rstrip("/"))):
                        yield number, f"names {name}, which does not exist"
                elif SOURCE_NAME.match(name) and not BARE_NAME.fullmatch(name) and not names_a_file(name, files):
                    yield number, f"names {name}; there is no such file"


def words_of_sources(root):
    words = set()
    for folder in FOLDERS.split("|"):
        if folder == "docs":
            continue
        for path in (root / folder).rglob("*"):
            if path.suffix in (".h", ".c", ".cpp", ".cu", ".cuh", ".py", ".sh", ".cmake", ".txt"):
                words.update(re.findall(r"[A-Za-z_]\w*", path.read_text(errors="replace")))
    return words


def check_identifiers(page, words):
    """Functions, types, keys and variables in `code` style: what has an underscore or a capital inside."""
    for number, line in pages.prose(page):
        for text in re.findall(r"`([^`]+)`", line):
            if "/" in text or "<" in text or BARE_NAME.search(text):
                continue
            for name in re.findall(r"\b[A-Za-z]\w*", text):
                if re.search(r"_|[a-z][A-Z]", name) and name not in words:
                    yield number, f"names {name}, which no source has"


def check_options(page, program, reasons, known):
    for number, line in pages.prose(page):
        for text in re.findall(r"`([^`]+)`", line):
            words = text.split()
            if words[:1] == ["kiln"]:
                problem = program.problem(words[1:])
                if problem:
                    yield number, problem
                    continue
            for name in re.findall(r"(?:^|[\s(])(--[a-z][\w-]*)", text):
                if name not in known and name not in reasons.foreign:
                    yield number, f"names the option {name}, which no command has"


def check_commands(page, root, program, targets):
    for shown in pages.commands(page, root):
        for words in pages.simple_commands(shown.text):
            problem = None
            if re.fullmatch(r"(?:build(?:-\w+)?/)?kiln", words[0]):
                problem = program.problem(words[1:])
            elif words[0] == "make" and len(words) > 1 and words[1] not in targets:
                problem = f"there is no make target {words[1]}"
            elif re.match(rf"(?:{FOLDERS})/", words[0]) and not (root / words[0]).exists():
                problem = f"runs {words[0]}, which does not exist"
            if problem:
                yield shown.line, f"{problem}: {shown.text}"


def check_all(root, kiln):
    program = Program(kiln)
    reasons = pages.Reasons.read(root / "tests/docs/commands.txt")
    known = program.all_options()
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.M))
    files = [f"/{name}" for name in reasons.files]
    for folder in FOLDERS.split("|"):
        files += [str(path) for path in (root / folder).rglob("*")]
    files += [str(path) for path in root.iterdir()]
    words = words_of_sources(root)
    problems, shown = docs_code.check(pages.pages(root), root), []
    for page in pages.pages(root) + sorted((root / "docs/results").rglob("*.md")):
        checks = [check_links(page, root)]
        if "results" not in page.parts:
            checks += [check_paths(page, root, files), check_options(page, program, reasons, known)]
            checks += [check_identifiers(page, words)]
            checks += [check_commands(page, root, program, targets)]
            shown += [c.text for c in pages.commands(page, root)]
        for check in checks:
            problems += [f"{page.relative_to(root)}:{number}: {problem}" for number, problem in check]
    for reason, pattern, text in reasons.patterns:
        if not any(pattern.match(c) for c in shown):
            problems.append(f"tests/docs/commands.txt: no page shows '{text}' ({reason})")
    return problems, len(shown)


PLANTED = """# Planted

## gone_from_heading.cpp: what it did

[gone](docs/gone.md) [heading](#no-such-heading) `src/gone.cpp` `gone_too.h` `--no-such-option` gone_from_text.cuh
`kiln gone-from-text` `gone_*.txt` `gone_function()` `GoneType::member`; not told: `int two`, thing.cpp, `src/<name>_placeholder.h`, https://example.org/elsewhere.h

```
gone_from_drawing.h  >  thing.cpp
```

```
$ build/kiln doctor --no-such-option
$ build/kiln frobnicate
$ make nothing
```

<!-- code: src/thing.cpp | int one ... int two -->
```cpp
int one = 1;
int two = 3;
```
"""
FOUND = ["docs/gone.md", "#no-such-heading", "src/gone.cpp", "gone_too.h", "gone_from_heading.cpp", "gone_from_text.cuh",
         "gone_from_drawing.h", "gone_*.txt", "gone_function", "GoneType", "option --no-such-option",
         "kiln doctor has no", "kiln frobnicate", "kiln gone-from-text", "make target nothing", "+int two = 2;", "no page shows 'build/kiln never'"]
NOT_TOLD = ["names thing.cpp", "placeholder.h", "elsewhere.h"]


def planted_problems(kiln):
    """A check that cannot fail is none: each of these must be found in pages made for it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name in ("docs/results", "src", "tests/docs"):
            (root / name).mkdir(parents=True)
        (root / "README.md").write_text(PLANTED)
        (root / "src/thing.cpp").write_text("int one = 1;\nint two = 2;\n")
        (root / "Makefile").write_text("build:\n")
        (root / "tests/docs/commands.txt").write_text("because | build/kiln never\n")
        problems = "\n".join(check_all(root, kiln)[0])
        return [text for text in FOUND if text not in problems] + [text for text in NOT_TOLD if text in problems]


def main(kiln, root=pages.ROOT):
    missed = planted_problems(kiln)
    if missed:
        sys.exit(f"the check misjudges what was planted: {missed}")
    problems, count = check_all(Path(root).resolve(), kiln)
    print("\n".join(problems))
    if problems:
        sys.exit(f"{len(problems)} problem(s) in the pages")
    print(f"links, paths, options and code hold; {count} command lines name what there is")


if __name__ == "__main__":
    main(*sys.argv[1:])
