#include "data/token_format.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "data/npy_header.h"

namespace kiln {
namespace {

template <class T>
T load(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

TokenLayout sniff_llmc(std::span<const std::byte> file, bool gpt2, std::string_view path) {
  constexpr std::size_t kHeader = kLlmcHeaderInts * sizeof(int32_t);
  const std::string_view format = gpt2 ? "llm.c uint16" : "llm.c uint32";
  if (file.size() < kHeader)
    throw Error(cat(path, " is cut short: it has ", file.size(), " bytes, an llm.c header has ", kHeader));
  const auto version = load<int32_t>(file, 4), count = load<int32_t>(file, 8);
  const int32_t wanted = gpt2 ? kLlmcVersionGpt2 : kLlmcVersionLlama3;
  if (version != wanted) throw Error(cat(path, " has llm.c version ", version, "; expected ", wanted));
  const TokenLayout layout{format, gpt2 ? TokenType::u16 : TokenType::u32, kHeader, count};
  const uint64_t expected = kHeader + static_cast<uint64_t>(std::max(count, 0)) * size_of(layout.type);
  if (count < 0 || file.size() != expected) {
    throw Error(
        cat(path, " has ", file.size(), " bytes; its header says ", count, " tokens, which take ", expected),
        "it was cut short or written badly; make it again");
  }
  return layout;
}

// Widens to int32. What does not fit becomes -1, which the caller refuses as it does all ids it does not
// know.
template <class T>
void widen(const std::byte* from, std::span<int32_t> to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof value);
    if constexpr (sizeof(T) == 2) {
      to[i] = value;
    } else {
      const bool fits = value <= static_cast<T>(std::numeric_limits<int32_t>::max()) && !(value < 0);
      to[i] = fits ? static_cast<int32_t>(value) : -1;
    }
  }
}

// As it is in the file, for the message.
int64_t token_at(std::span<const std::byte> file, TokenType type, std::size_t offset) {
  switch (type) {
    case TokenType::u16:
      return load<uint16_t>(file, offset);
    case TokenType::u32:
      return load<uint32_t>(file, offset);
    case TokenType::i32:
      return load<int32_t>(file, offset);
    case TokenType::i64:
      break;
  }
  return load<int64_t>(file, offset);
}

}  // namespace

TokenLayout sniff_tokens(std::span<const std::byte> file, std::string_view path) {
  if (file.empty()) throw Error(cat(path, " is empty; expected a file of tokens"));
  const int32_t magic = file.size() >= 4 ? load<int32_t>(file, 0) : 0;
  TokenLayout layout{};
  if (is_npy(file)) {
    layout = npy_tokens(file, path);
  } else if (magic == kLlmcMagicGpt2 || magic == kLlmcMagicLlama3) {
    layout = sniff_llmc(file, magic == kLlmcMagicGpt2, path);
  } else if (magic == 20240522) {
    throw Error(cat(path, " is an evaluation file of llm.c (HellaSwag), not a file of training tokens"));
  } else if (!path.ends_with(".bin")) {
    throw Error(cat(path, " is not a file of tokens"),
                "expected llm.c's or nanoGPT's .bin, or .npy; `kiln tokenize` makes one from text");
  } else if (file.size() % 2 != 0) {
    throw Error(
        cat(path, " has no header and ", file.size(), " bytes, an odd number; expected uint16 tokens"));
  } else {
    layout = {"nanoGPT uint16", TokenType::u16, 0, static_cast<int64_t>(file.size() / 2)};
  }
  if (layout.count == 0) throw Error(cat(path, " holds no tokens"));
  return layout;
}

void read_tokens(std::span<const std::byte> file, const TokenLayout& layout, int64_t begin,
                 std::span<int32_t> ids, int32_t vocab_size, std::string_view path) {
  if (begin < 0 || begin > layout.count || static_cast<int64_t>(ids.size()) > layout.count - begin)
    throw Error(cat("tokens ", begin, " to ", begin + static_cast<int64_t>(ids.size()), " of ", path,
                    " are wanted; it has ", layout.count));
  const std::size_t size = size_of(layout.type);
  const std::byte* from = file.data() + layout.offset + static_cast<std::size_t>(begin) * size;
  switch (layout.type) {
    case TokenType::u16:
      widen<uint16_t>(from, ids);
      break;
    case TokenType::u32:
      widen<uint32_t>(from, ids);
      break;
    case TokenType::i32:
      widen<int32_t>(from, ids);
      break;
    case TokenType::i64:
      widen<int64_t>(from, ids);
      break;
  }
  uint32_t largest = 0;  // a negative id is a very large one
  for (const int32_t id : ids) largest = std::max(largest, static_cast<uint32_t>(id));
  if (largest < static_cast<uint32_t>(vocab_size)) return;
  const auto bad =
      std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id < 0 || id >= vocab_size; });
  const auto token = begin + (bad - ids.begin());
  const std::size_t offset = layout.offset + static_cast<std::size_t>(token) * size;
  throw Error(cat("id ", token_at(file, layout.type, offset), " is beyond the vocabulary of ", vocab_size,
                  ": token ", token, ", byte ", offset, " of ", path),
              "these tokens were made with another tokenizer");
}

}  // namespace kiln
