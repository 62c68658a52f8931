#!/usr/bin/env python3
"""usage: safetensors_rules.py SAFETENSORS_VERDICTS [--files N] [--seed N]

Writes many safetensors files, most of them damaged in one or several ways, and decides for each by the rules of the format,
written down here a second time and independently of kiln's reader, whether it is one. kiln must take exactly those.

The rules: a length of 8 bytes, little-endian, at most 100 MB and not beyond the file; so many bytes of JSON, an object from
its first byte on; no key twice; __metadata__ maps to strings; every other entry has dtype, shape and data_offsets and
nothing else; the dtype is known; the shape is of whole numbers from 0 to 2^64 - 1, at most 64 of them; the offsets are two
such numbers, as far apart as dtype and shape say; sorted, the tensors cover the rest of the file without hole or overlap;
names have at most 4096 bytes. The program is fuzz/safetensors_verdicts.cpp."""
import argparse
import json
import os
import random
import struct
import subprocess
import sys
import time

BITS = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "U64": 64, "I32": 32, "U32": 32, "I16": 16, "U16": 16,
        "I8": 8, "U8": 8, "BOOL": 8, "C64": 64, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4}
MOST = 2**64 - 1
BATCH = 20000


class Refused(Exception):
    pass


def refuse(*_):
    raise Refused


def pairs(items):
    keys = [k for k, _ in items]
    if len(set(keys)) != len(keys):
        refuse()
    for text in keys + [v for _, v in items if isinstance(v, str)]:
        text.encode()  # half of a surrogate pair is no text
    return dict(items)


def whole(text):
    return refuse() if text.startswith("-") or len(text) > 20 or int(text) > MOST else int(text)


def range_of(entry):
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        refuse()
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS or not isinstance(shape, list) or not isinstance(offsets, list):
        refuse()
    if len(offsets) != 2 or len(shape) > 64 or any(type(n) is not int for n in shape + offsets):
        refuse()
    elements = 1
    for n in shape:
        elements *= n
        if elements > MOST:
            refuse()
    bits = elements * BITS[dtype]
    if bits > MOST or bits % 8 or offsets[1] - offsets[0] != bits // 8:
        refuse()
    return tuple(offsets)


def is_safetensors(file):
    try:
        if len(file) < 8:
            refuse()
        length = struct.unpack("<Q", file[:8])[0]
        if length > min(100_000_000, len(file) - 8):
            refuse()
        text = file[8:8 + length].decode()
        if not text.startswith("{"):
            refuse()
        page = json.loads(text, object_pairs_hook=pairs, parse_int=whole, parse_float=refuse, parse_constant=refuse)
        ranges = []
        for name, entry in page.items():
            if name == "__metadata__":
                if not isinstance(entry, dict) or not all(isinstance(v, str) for v in entry.values()):
                    refuse()
                continue
            if len(name.encode()) > 4096:
                refuse()
            ranges.append(range_of(entry))
        at = 0
        for begin, end in sorted(ranges):
            if begin != at:
                refuse()
            at = end
        return at == len(file) - 8 - length
    except (Refused, ValueError, RecursionError):
        return False


def page_of(rng):
    """A header and the bytes of its tensors."""
    at, page = 0, {}
    for i in range(rng.randrange(4)):
        dtype = rng.choice(list(BITS))
        shape = [rng.choice((0, 1, 2, 3, 8)) for _ in range(rng.randrange(4))]
        elements = 1
        for n in shape:
            elements *= n
        if elements * BITS[dtype] % 8:
            shape, elements = [8], 8
        end = at + elements * BITS[dtype] // 8
        page[rng.choice(("w", "m.", "a b", "\u00e9", "x\\")) + str(i)] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    if rng.random() < 0.3:
        page["__metadata__"] = {"format": "pt"}
    items = list(page.items())
    rng.shuffle(items)
    return dict(items), at


ODD = [0, 1, -1, 1.5, 2**63, 2**64 - 1, 2**64, "1", None, True, [], {}, [1], "F33", "f32"]


def damage_page(page, rng):
    names = [n for n in page if n != "__metadata__"]
    kind = rng.randrange(7)
    if kind == 0 or not names:
        page[rng.choice(("__metadata__", "extra", "n" * rng.choice((4096, 4097))))] = rng.choice(ODD + [{"a": "b"}, {"a": 1}])
        return
    entry = page[rng.choice(names)]
    if not isinstance(entry, dict) or not isinstance(entry.get("data_offsets"), list):
        return
    if kind == 1:
        entry[rng.choice(("dtype", "shape", "data_offsets"))] = rng.choice(ODD)
    elif kind == 2:
        entry.pop(rng.choice(list(entry)))
    elif kind == 3 and entry["data_offsets"]:
        i = rng.randrange(len(entry["data_offsets"]))
        if isinstance(entry["data_offsets"][i], int):
            entry["data_offsets"][i] += rng.choice((-1, 1, 4, -4, 2**32))
    elif kind == 4 and isinstance(entry.get("shape"), list):
        entry["shape"] = entry["shape"] + [rng.choice((0, 1, 2, 2**32, 2**64 - 1))] * rng.choice((1, 2, 64, 65))
    elif kind == 5:
        entry["more"] = 1
    else:
        entry["dtype"] = rng.choice(list(BITS))


def damage_text(text, rng):
    kind = rng.randrange(6)
    at = rng.randrange(len(text) + 1)
    if kind == 0:
        return text[:at] + text[at + 1:]
    if kind == 1:
        return text[:at] + bytes([rng.choice(b'{}[],:"0123456789-.eE\\ntu \t\x00\x7f\x80\xff')]) + text[at:]
    if kind == 2:
        return text[:at] + bytes([rng.randrange(256)]) + text[at + 1:]
    if kind == 3:  # a key twice
        return text.replace(b"{", rng.choice((b'{"shape": [1], ', b'{"w0": 1, ', b'{"a": "b", "a": "c", ')), rng.choice((1, 2)))
    if kind == 4:
        return rng.choice((b" ", b"\n", b"\xef\xbb\xbf", b"\x00")) + text if rng.random() < 0.5 else text + rng.choice((b" ", b"  \n", b"x", b"\x00", b"{}"))
    return text.replace(rng.choice((b"0", b"1", b"8")), rng.choice((b"00", b"-0", b"1e0", b"1.0", b"18446744073709551615", b"\\u0030")), 1)


def file_of(rng):
    page, data = page_of(rng)
    for _ in range(rng.choice((0, 0, 1, 1, 1, 2))):
        damage_page(page, rng)
    text = json.dumps(page, ensure_ascii=rng.random() < 0.5).encode()
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        text = damage_text(text, rng)
    text += b" " * rng.choice((0, 0, -len(text) % 8))
    length = len(text) if rng.random() < 0.9 else max(0, len(text) + rng.choice((-1, 1, 8, 2**40, 2**63)))
    data += rng.choice((0,) * 12 + (1, -1, 8))
    file = struct.pack("<Q", length) + text + b"\x07" * max(0, data)
    return file[:rng.randrange(len(file) + 1)] if rng.random() < 0.05 else file


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[0][7:])
    parser.add_argument("verdicts")
    parser.add_argument("--files", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    options = parser.parse_args()
    rng, began = random.Random(options.seed), time.monotonic()
    print(f"seed {options.seed}", flush=True)
    taken = done = 0
    while done < options.files:
        files = [file_of(rng) for _ in range(min(BATCH, options.files - done))]
        packed = b"".join(struct.pack("<I", len(f)) + f for f in files)
        answers = subprocess.run([options.verdicts], input=packed, capture_output=True, check=True).stdout.decode()
        mine = [is_safetensors(f) for f in files]
        if len(answers) != len(files):
            sys.exit(f"{len(answers)} answers for {len(files)} files")
        for file, kiln, rules in zip(files, answers, mine):
            if (kiln == "1") != rules:
                sys.exit(f"kiln {'takes' if kiln == '1' else 'refuses'} a file that the rules {'take' if rules else 'refuse'}: "
                         f"{file[:600]!r}")
        taken += sum(mine)
        done += len(files)
    # Files of one kind only would compare nothing.
    if not 0.05 < taken / done < 0.95:
        sys.exit(f"{taken} of {done} files were safetensors: the files are not what they should be")
    print(f"{done} files, {taken} of them safetensors, 0 disagreements, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
