// usage: safetensors_verdicts <INPUTS
// Whether kiln takes each of many files as safetensors: reads a length (u32, little-endian) and so many
// bytes, again and again; prints 1 or 0 for each. tests/faults/safetensors_rules.py compares the answers with
// its own.
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/safetensors_header.h"

namespace {

bool is_taken(const std::vector<std::uint8_t>& file) {
  try {
    const kiln::SafetensorsParts parts = kiln::split_safetensors(std::as_bytes(std::span(file)), "input");
    const kiln::SafetensorsHeader header(parts.json, parts.data.size(), "input");
    return true;
  } catch (const kiln::Error&) {
    return false;
  }
}

}  // namespace

int main() {
  std::uint8_t length[4];
  std::string answers;
  while (std::fread(length, 1, 4, stdin) == 4) {
    const std::uint32_t n = length[0] | length[1] << 8 | length[2] << 16 | std::uint32_t{length[3]} << 24;
    std::vector<std::uint8_t> file(n);
    if (std::fread(file.data(), 1, n, stdin) != n) return 2;
    answers += is_taken(file) ? '1' : '0';
  }
  std::fwrite(answers.data(), 1, answers.size(), stdout);
  return 0;
}
