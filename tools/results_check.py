"""What can be wrong with measured pages (tools/results.py check): each function yields a sentence for each fault."""

import fnmatch
import json
import re

from results import begin_of, END, has_rows, left_over, MANIFEST, manifest_of, MARK, pages_with_changes, section

LIMIT = 16 << 20  # bytes of a file of rows


def row_problems(entry, root):
    for file in entry["rows"]:
        data = (root / file).read_bytes()
        if len(data) > LIMIT:
            yield f"{file}: {len(data)} bytes; expected at most {LIMIT}"
        for number, line in enumerate(data.decode().splitlines(), 1):
            try:
                row = json.loads(line)
            except ValueError:
                yield f"{file}:{number}: is no JSON"
                continue
            missing = [key for key in ("command", "time", "host") if not row.get(key)]
            if not row.get("build_id") and not row.get("peer_version"):
                missing.append("build_id or peer_version")
            if missing:
                yield f"{file}:{number}: does not say its {', '.join(missing)}"
            if "dirty" in str(row.get("build_id")) or row.get("build_id") == "unknown":
                yield f"{file}:{number}: is of the build {row['build_id']}, which no commit has; measure a clean tree"


def generated_problems(manifest, root):
    for entry in manifest["generated"]:
        name = entry["name"]
        for key in ("rows", "measure") + (() if "folder" in entry else ("page", "render")):
            if not entry.get(key):
                yield f"{MANIFEST}: {name} has no {key}"
        if has_rows(entry, root):
            if "awaiting" in entry:
                yield f"{MANIFEST}: {name} has its rows and is still said to await them"
            yield from row_problems(entry, root)
        elif "awaiting" not in entry:
            yield f"{MANIFEST}: {name}: its rows are not there: {', '.join(entry['rows'])}"
        if "page" in entry:
            text = (root / entry["page"]).read_text()
            place = section(text, name)
            if place is None:
                yield f"{entry['page']}: has no lines '{begin_of(name)}' and '{END}'"
            elif "awaiting" in entry and MARK not in text[place[0] : place[1]]:
                yield f"{entry['page']}: {name} awaits its rows; what stands there lacks the mark '{MARK}'"


def changed_pages(manifest, kiln, root):
    made = pages_with_changes(manifest, kiln, root)
    yield from (f"{path}: is in a report and its rows do not make it" for path in left_over(manifest, made, root))
    for path, data in made.items():
        if not (root / path).exists():
            yield f"{path}: is not there; tools/results.py render writes it"
        elif (root / path).read_bytes() != data:
            yield f"{path}: is not what its rows make of it; edit the rows' measurement, not the page: tools/results.py render"


def outside_sections(text):
    return re.sub(r"<!-- rows: .*? -->\n.*?" + re.escape(END), "", text, flags=re.S)


def tables_of(text):
    """First lines of the tables and blocks of output outside of generated sections."""
    found, lines = [], outside_sections(text).splitlines()
    for before, line in zip([""] + lines, lines):
        if re.match(r"\s*\|", line) and not re.match(r"\s*\|", before):
            found.append(line)
    return found


def is_listed(path, patterns):
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns)


def page_problems(manifest, root):
    """Every page and chart of docs/results is generated or listed, and a listed page says so itself."""
    listed = [entry["page"] for entry in manifest["without_rows"]]
    folders = [entry["folder"] + "/*" for entry in manifest["generated"] if "folder" in entry]
    pages = {entry["page"] for entry in manifest["generated"] if "page" in entry}
    rows = {file for entry in manifest["generated"] for file in entry["rows"]}
    for entry in manifest["without_rows"]:
        missing = [key for key in ("measured", "kiln", "why") if not entry.get(key)]
        if missing:
            yield f"{MANIFEST}: {entry['page']} does not say {', '.join(missing)}"
        if not any((root / "docs/results").glob(entry["page"].removeprefix("docs/results/"))):
            yield f"{MANIFEST}: {entry['page']} is listed without rows and is not there"
    for file in sorted((root / "docs/results").rglob("*")):
        path = str(file.relative_to(root))
        if file.is_dir() or path == MANIFEST or path in rows:
            continue
        old, own = is_listed(path, listed), path in pages or is_listed(path, folders)
        if not old and not own:
            yield f"{path}: is neither generated from rows nor listed in {MANIFEST}"
        if file.suffix != ".md":
            continue
        text = file.read_text()
        if old and MARK not in text:
            yield f"{path}: is listed without rows and does not say so: '{MARK}'"
        if not old and path in pages and tables_of(text):
            yield f"{path}: has a table that no rows make: {tables_of(text)[0]}"


def paragraphs(text):
    line = 1
    for block in text.split("\n\n"):
        yield line, block
        line += block.count("\n") + 2


def citation_problems(manifest, root):
    """Who cites a page without rows says so in the same paragraph, and who cites one with rows does not; a line of a table counts
    as a paragraph."""
    listed = [entry["page"] for entry in manifest["without_rows"]]
    made = [entry["folder"] + "/*" for entry in manifest["generated"] if "folder" in entry and has_rows(entry, root)]
    for page in [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]:
        if not page.exists():
            continue
        for number, block in paragraphs(page.read_text()):
            parts = block.splitlines() if block.lstrip().startswith("|") else [block]
            for part in parts:
                paths = {t: (page.parent / t).resolve() for t in re.findall(r"\]\(([^)\s#]+)", part)}
                cited = {t: str(p.relative_to(root.resolve())) for t, p in paths.items() if p.is_relative_to(root.resolve())}
                old = [target for target, path in cited.items() if is_listed(path, listed)]
                new = [target for target, path in cited.items() if is_listed(path, made)]
                if MARK not in part:
                    yield from (f"{page.relative_to(root)}:{number}: cites {t} and does not say '{MARK}'" for t in old)
                elif new and not old:
                    yield f"{page.relative_to(root)}:{number}: says '{MARK}' of {new[0]}, which has its rows now"


FIGURE = re.compile(r"[+-]?[\d,]*\.?\d+(?:-[\d.]+)?(?: ?(?:x|%|s|ms|us|[kMG]B/s|[MG]iB|[GT]FLOP/s))?(?: ?[(/,:]|$)")
UNIT = re.compile(r"\b(?:ms|us|\d s|seconds|tokens a second|[kMGT]?B/s|[GT]FLOP/s|tokens/s)\b")


def measured_tables(text):
    """(line, first line, the words around it) of each table of times or rates outside of generated sections. A section keeps
    its lines, so that numbers hold."""
    text = re.sub(r"<!-- rows: .*? -->\n.*?" + re.escape(END), lambda m: re.sub(r".", "", m[0]), text, flags=re.S)
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        end = at
        while end < len(lines) and lines[end].startswith("|"):
            end += 1
        if end > at:
            cells = [c.strip(" *`") for line in lines[at + 2 : end] for c in line.strip("|").split("|")]
            before = "\n".join(lines[:at]).rstrip().split("\n\n")[-1]
            after = "\n".join(lines[end:]).strip().split("\n\n")[0]
            if sum(bool(FIGURE.match(c)) for c in cells) >= 4 and UNIT.search("\n".join([before, *lines[at:end]])):
                yield at + 1, lines[at], before + "\n" + after
        at = max(end, at + 1)


def elsewhere_problems(manifest, root):
    """Measured tables in other pages: marked, and listed with date and build."""
    listed = {(e["page"], e["table"]) for e in manifest.get("elsewhere", []) if e.get("measured") and e.get("kiln")}
    found = set()
    for page in [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]:
        path = str(page.relative_to(root))
        for number, first, around in measured_tables(page.read_text() if page.exists() else ""):
            found.add((path, first))
            if (path, first) not in listed:
                yield f"{path}:{number}: measured figures that no rows make; generate them, or list them under elsewhere: {first}"
            if MARK not in around:
                yield f"{path}:{number}: the paragraph before or after these figures does not say '{MARK}'"
    for path, first in sorted(listed - found):
        yield f"{MANIFEST}: lists a table that {path} does not have: {first}"


def problems(kiln, root):
    manifest = manifest_of(root)
    found = [*page_problems(manifest, root), *citation_problems(manifest, root), *generated_problems(manifest, root),
             *elsewhere_problems(manifest, root)]  # fmt: skip
    try:
        return found + list(changed_pages(manifest, kiln, root))
    except SystemExit as why:
        return found + [str(why)]


def check(kiln, root):
    found = problems(kiln, root)
    if found:
        raise SystemExit("\n".join(found) + f"\n{len(found)} problem(s) in the measured pages")
    manifest = manifest_of(root)
    awaiting = [entry["name"] for entry in manifest["generated"] if "awaiting" in entry]
    print(f"{len(manifest['generated']) - len(awaiting)} tables are what their rows make of them, {len(awaiting)} await their "
          f"rows, {len(manifest['without_rows'])} pages and {len(manifest.get('elsewhere', []))} other tables are listed without rows")  # fmt: skip
