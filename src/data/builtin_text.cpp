#include "data/builtin_text.h"

// The assembler reads the file (KILN_BUILTIN_TEXT, its path) straight into the object: a compiler would take
// seconds over a megabyte of characters.
asm(".pushsection .rodata\n"
    ".globl kKilnBuiltinTextBegin, kKilnBuiltinTextEnd\n"
    "kKilnBuiltinTextBegin:\n"
    ".incbin \"" KILN_BUILTIN_TEXT
    "\"\n"
    "kKilnBuiltinTextEnd:\n"
    ".byte 0\n"
    ".popsection\n");

extern "C" {
extern const char kKilnBuiltinTextBegin[], kKilnBuiltinTextEnd[];
}

namespace kiln {

std::string_view builtin_text() {
  return {kKilnBuiltinTextBegin, static_cast<std::size_t>(kKilnBuiltinTextEnd - kKilnBuiltinTextBegin)};
}

}  // namespace kiln
