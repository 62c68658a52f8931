// The formats of token files, recognised by their first bytes and their size. All little-endian.
//   llm.c, GPT-2     256 x int32 {20240520, 1, n, 0...}, then n x uint16
//   llm.c, Llama 3   256 x int32 {20240801, 7, n, 0...}, then n x uint32
//   NumPy .npy       one axis of uint16, uint32, int32 or int64
//   nanoGPT          nothing but uint16; taken for that only when the name ends in .bin
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kiln {

enum class TokenType { u16, u32, i32, i64 };

struct TokenLayout {
  std::string_view format;  // "llm.c uint16", "nanoGPT uint16", "npy int64", ...
  TokenType type;
  std::size_t offset;  // bytes before the first token
  int64_t count;
};

constexpr std::size_t size_of(TokenType t) { return t == TokenType::u16 ? 2 : t == TokenType::i64 ? 8 : 4; }

// Error naming `path` when the bytes are none of these, are cut short, or hold no token. Reads the header
// alone.
TokenLayout sniff_tokens(std::span<const std::byte> file, std::string_view path);

// Tokens begin... as int32. Error naming id, place and file for one that is negative or not below
// `vocab_size`.
void read_tokens(std::span<const std::byte> file, const TokenLayout& layout, int64_t begin,
                 std::span<int32_t> ids, int32_t vocab_size, std::string_view path);

inline constexpr int32_t kLlmcMagicGpt2 = 20240520, kLlmcMagicLlama3 = 20240801;
inline constexpr int32_t kLlmcVersionGpt2 = 1, kLlmcVersionLlama3 = 7;
inline constexpr std::size_t kLlmcHeaderInts = 256;

}  // namespace kiln
