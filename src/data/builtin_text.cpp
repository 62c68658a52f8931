#include "data/builtin_text.h"

// The assembler reads the file (KILN_BUILTIN_TEXT, its path) straight into the object: a compiler would take
// seconds over a megabyte of characters.
asm(".pushsection .rodata\n"
    ".globl kiln_builtin_text_begin, kiln_builtin_text_end\n"
    "kiln_builtin_text_begin:\n"
    ".incbin \"" KILN_BUILTIN_TEXT
    "\"\n"
    "kiln_builtin_text_end:\n"
    ".byte 0\n"
    ".popsection\n");

extern "C" {
extern const char kiln_builtin_text_begin[], kiln_builtin_text_end[];
}

namespace kiln {

std::string_view builtin_text() {
  return {kiln_builtin_text_begin, static_cast<std::size_t>(kiln_builtin_text_end - kiln_builtin_text_begin)};
}

}  // namespace kiln
