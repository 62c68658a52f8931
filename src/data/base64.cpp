#include "data/base64.h"

#include <array>
#include <cstdint>

namespace kiln {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> kValues = [] {
  std::array<int8_t, 256> values{};
  for (int8_t& v : values) v = -1;
  for (std::size_t i = 0; i < kDigits.size(); ++i)
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  return values;
}();

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < n; ++k)
      three |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[i + k])) << (16 - 8 * k);
    for (std::size_t k = 0; k < 4; ++k) text += k <= n ? kDigits[three >> (18 - 6 * k) & 0x3f] : '=';
  }
  return text;
}

std::optional<std::string> from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    const bool last = i + 4 == text.size();
    const std::size_t padding = !last ? 0 : text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
    uint32_t four = 0;
    for (std::size_t k = 0; k < 4 - padding; ++k) {
      const int8_t v = kValues[static_cast<unsigned char>(text[i + k])];
      if (v < 0) return std::nullopt;
      four |= static_cast<uint32_t>(v) << (18 - 6 * k);
    }
    if ((four & ((1U << (8 * padding)) - 1)) != 0) return std::nullopt;  // bits no encoder writes
    for (std::size_t k = 0; k < 3 - padding; ++k) bytes += static_cast<char>(four >> (16 - 8 * k) & 0xff);
  }
  return bytes;
}

}  // namespace kiln
