#!/usr/bin/env python3
"""Writes src/data/unicode_tables.cpp: the letters and numbers of Unicode as ranges of code points.

usage: tools/make_unicode_tables.py > src/data/unicode_tables.cpp     (then: make format)

Python 3.11 carries Unicode 14.0, which is also what PCRE2 10.42 (Debian 12, Ubuntu 24.04) carries; a test holds the
tables to PCRE2's.
"""
import unicodedata


def ranges(category):
    found = []
    for c in range(0x110000):
        if unicodedata.category(chr(c))[0] == category:
            if found and found[-1][1] == c - 1:
                found[-1][1] = c
            else:
                found.append([c, c])
    return found


def write(name, category):
    print(f"const CodePointRange {name}[] = {{")
    print(", ".join(f"{{0x{a:x}, 0x{b:x}}}" for a, b in ranges(category)) + "};")


print(f"// Made by tools/make_unicode_tables.py from Unicode {unicodedata.unidata_version}; do not edit.")
print('#include "data/unicode_classes.h"\n\nnamespace kiln {\nnamespace {\n')
write("kLetterRanges", "L")
print()
write("kNumberRanges", "N")
print("\n}  // namespace\n")
print("std::span<const CodePointRange> letter_ranges() { return kLetterRanges; }")
print("std::span<const CodePointRange> number_ranges() { return kNumberRanges; }")
print("\n}  // namespace kiln")
