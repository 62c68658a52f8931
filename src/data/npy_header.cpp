// The header is a Python literal, "{'descr': '<u2', 'fortran_order': False, 'shape': (10,), }", after the
// magic
// "\x93NUMPY", a version and its own length.
#include "data/npy_header.h"

#include <charconv>
#include <cstring>
#include <optional>

#include "base/error.h"

namespace kiln {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

// Just as much of Python's grammar as these headers use.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, std::string_view path) : text_(text), path_(path) {}

  [[noreturn]] void fail(std::string_view what) const { throw Error(cat(path_, ": the .npy header ", what)); }

  bool take(char c) {
    skip_space();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  void need(char c) {
    if (!take(c)) fail(cat("lacks '", c, "' where it should be"));
  }
  std::string_view quoted() {
    skip_space();
    const char quote = text_.empty() ? '\0' : text_.front();
    if (quote != '\'' && quote != '"') fail("has something else where a string should be");
    const std::size_t end = text_.find(quote, 1);
    if (end == std::string_view::npos) fail("has a string without an end");
    const std::string_view value = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return value;
  }
  bool boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}}) {
      if (!text_.starts_with(word)) continue;
      text_.remove_prefix(std::strlen(word));
      return value;
    }
    fail("has something else where True or False should be");
  }
  int64_t number() {
    skip_space();
    int64_t value = -1;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (error != std::errc{} || value < 0) fail("has something else where a length should be");
    text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
    return value;
  }
  bool at_end() {
    skip_space();
    return text_.empty();
  }

 private:
  void skip_space() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\n')) text_.remove_prefix(1);
  }
  std::string_view text_, path_;
};

struct Known {
  std::string_view descr, format;
  TokenType type;
};
constexpr Known kKnown[] = {{"<u2", "npy uint16", TokenType::u16},
                            {"<u4", "npy uint32", TokenType::u32},
                            {"<i4", "npy int32", TokenType::i32},
                            {"<i8", "npy int64", TokenType::i64}};

}  // namespace

bool is_npy(std::span<const std::byte> file) {
  return file.size() >= kMagic.size() && std::memcmp(file.data(), kMagic.data(), kMagic.size()) == 0;
}

TokenLayout npy_tokens(std::span<const std::byte> file, std::string_view path) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const auto byte = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(text[i]));
  };
  if (text.size() < 12) throw Error(cat(path, " is cut short: ", text.size(), " bytes are no .npy file"));
  const std::size_t major = byte(6);
  if (major < 1 || major > 3)
    throw Error(cat(path, " is a .npy file of version ", major, "; expected 1, 2 or 3"));
  const std::size_t begin = major == 1 ? 10 : 12;
  std::size_t length = byte(8) | byte(9) << 8;
  if (major > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > text.size() - begin)
    throw Error(cat(path, " is cut short: its .npy header has ", length, " bytes, the file ", text.size()));

  HeaderReader header(text.substr(begin, length), path);
  std::optional<std::string_view> descr;
  std::optional<bool> fortran;
  std::optional<int64_t> count;
  header.need('{');
  while (!header.take('}')) {
    const std::string_view key = header.quoted();
    header.need(':');
    if (key == "descr" && !descr) {
      descr = header.quoted();
    } else if (key == "fortran_order" && !fortran) {
      fortran = header.boolean();
    } else if (key == "shape" && !count) {
      header.need('(');
      if (header.take(')')) header.fail("has the shape (); expected one axis");
      count = header.number();
      header.need(',');
      if (!header.take(')')) header.fail("has more than one axis; expected one");
    } else {
      header.fail(cat("has '", key.substr(0, 40), "', which is unknown or came before"));
    }
    if (!header.take(',')) {
      header.need('}');
      break;
    }
  }
  if (!header.at_end()) header.fail("has data after its end");
  if (!descr || !fortran || !count) header.fail("lacks one of descr, fortran_order, shape");
  for (const Known& k : kKnown) {
    if (k.descr != *descr) continue;
    const std::size_t offset = begin + length, left = text.size() - offset;
    if (left % size_of(k.type) != 0 || left / size_of(k.type) != static_cast<std::size_t>(*count))
      throw Error(
          cat(path, " has ", left, " bytes of data; its header says ", *count, " x ", k.format.substr(4)));
    return {k.format, k.type, offset, *count};
  }
  throw Error(cat(path, " holds '", descr->substr(0, 40),
                  "'; expected little-endian uint16, uint32, int32 or int64"));
}

}  // namespace kiln
