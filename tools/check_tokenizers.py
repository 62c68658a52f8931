#!/usr/bin/env python3
"""Checks kiln's tokenizers against Hugging Face `tokenizers` and `tiktoken`. Not needed to build or test.

usage: tools/check_tokenizers.py make  KILN FOLDER     kiln's half: texts, tokenizers, ids (KILN: build/kiln)
       tools/check_tokenizers.py check FOLDER          the others' half, where the two packages are installed

Two steps, so that they can run on two machines. For each pattern: kiln trains a BPE, writes tokenizer.json and encodes a
text of sources and of random characters; `tokenizers` loads the file and must give the same ids; `tiktoken` is given the
same vocabulary as ranks, and kiln's ids from the rank file must be its ids.
"""
import base64
import glob
import json
import os
import random
import struct
import subprocess
import sys
import unicodedata

PATTERNS = ["gpt2", "cl100k", "o200k", "llama3"]


def make_text():
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parts = [open(p, encoding="utf-8").read() for p in sorted(glob.glob(here + "/src/**/*.h", recursive=True))]
    rng = random.Random(1)
    assigned = [chr(c) for c in range(1, 0x30000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    some = assigned[:0x300] * 20 + assigned
    for _ in range(2000):
        parts.append("".join(rng.choice(some) for _ in range(rng.randrange(1, 60))))
        parts.append(rng.choice([" ", "\n", "  \n", "'s ", "'LL ", " 12345 ", "<|endoftext|>", "\r\n\r\n", "\t"]))
    return "".join(parts)


def byte_alphabet():
    table, n = {}, 0
    for b in range(256):
        if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or 0xAE <= b:
            table[chr(b)] = b
        else:
            table[chr(0x100 + n)] = b
            n += 1
    return table


def read_ids(folder):
    ids = []
    for path in sorted(glob.glob(folder + "/train_*.bin")):
        data = open(path, "rb").read()
        count = struct.unpack("<3i", data[:12])[2]
        ids += struct.unpack(f"<{count}H", data[1024:])
    return ids[:-1]  # without the end of the document


def make(kiln, folder):
    os.makedirs(folder, exist_ok=True)
    text = folder + "/text"
    with open(text, "w", encoding="utf-8", newline="") as file:
        file.write(make_text())

    def run(*args):
        subprocess.run([kiln, "tokenize", "--text", text, "--validation", "0", "--overwrite", *args],
                       check=True, stdout=subprocess.DEVNULL)

    alphabet = byte_alphabet()
    for pattern in PATTERNS:
        out = f"{folder}/{pattern}"
        run("--train-bpe", "4000", "--pattern", pattern, "--out", out)
        vocab = json.load(open(out + "/tokenizer.json"))["model"]["vocab"]
        with open(out + ".tiktoken", "wb") as file:
            for token, rank in sorted(vocab.items(), key=lambda kv: kv[1]):
                if token != "<|endoftext|>":
                    file.write(base64.b64encode(bytes(alphabet[c] for c in token)) + b" %d\n" % rank)
        run("--tokenizer", out + ".tiktoken", "--pattern", pattern, "--out", out + ".ranks")
        run("--tokenizer", out + ".ranks/tokenizer.json", "--out", out + ".ranks_json")


def check(folder):
    import tiktoken
    from tokenizers import Tokenizer

    text = open(folder + "/text", encoding="utf-8", newline="").read()
    bad = 0

    def compare(name, ours, theirs):
        nonlocal bad
        same = list(ours) == list(theirs)
        bad += not same
        first = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
        print(f"{name:28} {len(ours):8} ids  {'the same' if same else f'DIFFER at {first}'}")

    for pattern in PATTERNS:
        out = f"{folder}/{pattern}"
        hf = Tokenizer.from_file(out + "/tokenizer.json")
        ours = read_ids(out)
        compare(f"tokenizers {tokenizers_version()} {pattern}", ours, hf.encode(text).ids)
        assert hf.decode(ours, skip_special_tokens=False) == text
        page = json.load(open(out + "/tokenizer.json"))
        ranks = {}
        for line in open(out + ".tiktoken", "rb"):
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
        regex = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
        if pattern != "gpt2":
            regex = page["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
        enc = tiktoken.Encoding(pattern, pat_str=regex, mergeable_ranks=ranks,
                                special_tokens={"<|endoftext|>": len(ranks)})
        compare(f"tiktoken {tiktoken.__version__} {pattern}", read_ids(out + ".ranks"),
                enc.encode(text, allowed_special="all"))
        ranked = Tokenizer.from_file(out + ".ranks/tokenizer.json")
        compare(f"tokenizers, ranks {pattern}", read_ids(out + ".ranks_json"), ranked.encode(text).ids)
    return bad


def tokenizers_version():
    import tokenizers
    return tokenizers.__version__


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3])
    elif len(sys.argv) == 3 and sys.argv[1] == "check":
        sys.exit(1 if check(sys.argv[2]) else 0)
    else:
        sys.exit(__doc__)
