#include "perf/memory/pickle_writer.h"

#include <limits>

namespace kiln {
namespace {

constexpr int kBatch = 1000;
constexpr std::size_t kBuffer = std::size_t{1} << 20;

}  // namespace

PickleWriter::PickleWriter(std::function<void(std::string_view)> sink) : sink_(std::move(sink)) {
  put(std::string_view("\x80\x02", 2));
}

void PickleWriter::put(std::string_view bytes) {
  buffer_ += bytes;
  if (buffer_.size() < kBuffer) return;
  sink_(buffer_);
  buffer_.clear();
}

void PickleWriter::put_u32(char code, uint32_t value) {
  char bytes[5] = {code};
  for (int i = 0; i < 4; ++i) bytes[i + 1] = static_cast<char>(value >> (8 * i) & 0xff);
  put({bytes, sizeof bytes});
}

// Keys count too: a batch of a dictionary is 500 entries.
void PickleWriter::item() {
  if (levels_.empty()) return;
  Level& level = levels_.back();
  if (level.items == kBatch) {
    put(level.list ? "e(" : "u(");
    level.items = 0;
  }
  ++level.items;
}

void PickleWriter::begin_dict() {
  item();
  put("}(");
  levels_.push_back({false, 0});
}

void PickleWriter::end_dict() {
  put("u");
  levels_.pop_back();
}

void PickleWriter::begin_list() {
  item();
  put("](");
  levels_.push_back({true, 0});
}

void PickleWriter::end_list() {
  put("e");
  levels_.pop_back();
}

void PickleWriter::text(std::string_view value) {
  item();
  const auto [it, fresh] = texts_.try_emplace(std::string(value), next_memo_);
  if (!fresh) {
    put_u32('j', it->second);
    return;
  }
  put_u32('X', static_cast<uint32_t>(value.size()));
  put(value);
  put_u32('r', next_memo_++);
}

void PickleWriter::number(int64_t v) {
  item();
  if (v >= 0 && v < 256) {
    const char bytes[2] = {'K', static_cast<char>(v)};
    put({bytes, 2});
  } else if (v >= std::numeric_limits<int32_t>::min() && v <= std::numeric_limits<int32_t>::max()) {
    put_u32('J', static_cast<uint32_t>(v));
  } else {
    char bytes[10] = {'\x8a', 8};
    for (int i = 0; i < 8; ++i) bytes[i + 2] = static_cast<char>(static_cast<uint64_t>(v) >> (8 * i) & 0xff);
    put({bytes, sizeof bytes});
  }
}

void PickleWriter::flag(bool value) {
  item();
  put(value ? "\x88" : "\x89");
}

void PickleWriter::pair(int64_t a, int64_t b) {
  item();
  levels_.push_back({true, 0});  // its two numbers are no items
  number(a);
  number(b);
  levels_.pop_back();
  put("\x86");
}

uint32_t PickleWriter::remember() {
  put_u32('r', next_memo_);
  return next_memo_++;
}

void PickleWriter::again(uint32_t number) {
  item();
  put_u32('j', number);
}

void PickleWriter::finish() {
  put(".");
  sink_(buffer_);
  buffer_.clear();
}

}  // namespace kiln
