// Makes text that may hold anything (it quotes arguments and files) safe to print on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

// Line ends become "; ", other control characters \xNN; the middle of very long text is left out.
std::string one_line(std::string_view text);

// Several lines of foreign text, each after "  | ", control characters other than tabs as \xNN.
std::string indented(std::string_view text);

// What kiln complained of, among the last lines it wrote to stderr: "kiln: no such thing" without its first
// word; empty where it did not.
std::string last_word(const std::string& errors);

}  // namespace kiln
