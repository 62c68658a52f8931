// The header of a safetensors file: what it says, and the rules that make it trustworthy.
//
//   u64, little-endian        length of the header, at most 100 MB
//   header                    JSON: {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
//                             "__metadata__": {"key": "text", ...}}, padded with spaces
//   data                      the tensors one after the other, without a hole, up to the end of the file
//
// All of it is checked before a byte of the data is looked at: a header that was taken describes exactly the
// file it is in. It is read event by event into a few flat arrays, so that memory stays below four times
// the header's size, whatever the header says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

// clang-format off
enum class SafetensorsType : uint8_t {
  f64, f32, f16, bf16, i64, u64, i32, u32, i16, u16, i8, u8, boolean,
  c64, f8_e5m2, f8_e4m3, f8_e8m0, f6_e2m3, f6_e3m2, f4,
};
// clang-format on

std::string_view name_of(SafetensorsType type);  // as it is in a file: "BF16"
int bits_of(SafetensorsType type);               // of one element

// One tensor. Its name and shape belong to the header.
struct SafetensorsEntry {
  std::string_view name;
  SafetensorsType type;
  std::span<const uint64_t> shape;
  uint64_t begin, end;  // bytes, from the start of the data

  uint64_t bytes() const { return end - begin; }
  uint64_t elements() const;
  std::string shape_text() const;  // "[2, 3]"
};

class SafetensorsHeader {
 public:
  static constexpr uint64_t kMostBytes = 100'000'000;
  static constexpr std::size_t kMostTensors = 1'000'000;
  static constexpr std::size_t kLongestName = 4096;
  static constexpr std::size_t kMostAxes = 64;

  SafetensorsHeader() = default;
  // `json` is the header's text, `data_bytes` the size of what follows it. Throws Error, `source` first.
  SafetensorsHeader(std::string_view json, uint64_t data_bytes, std::string_view source);

  std::size_t size() const { return tensors_.size(); }
  SafetensorsEntry operator[](std::size_t index) const;  // in the order of the data
  std::optional<SafetensorsEntry> find(std::string_view name) const;
  std::optional<std::string_view> metadata(std::string_view key) const;
  std::size_t metadata_size() const { return metadata_.size(); }

 private:
  friend class SafetensorsHeaderReader;

  struct Text {  // a piece of text_
    uint32_t at = 0, size = 0;
  };
  struct Tensor {
    uint64_t begin = 0, end = 0;
    Text name;
    uint32_t shape_at = 0;
    uint16_t axes = 0;
    SafetensorsType type{};
  };
  struct Metadata {
    Text key, value;
  };

  std::string_view view(Text t) const { return std::string_view(text_).substr(t.at, t.size); }
  void check(uint64_t data_bytes, std::string_view source);

  std::string text_;              // all names and metadata
  std::vector<uint64_t> shapes_;  // all shapes
  std::vector<Tensor> tensors_;   // by place in the data
  std::vector<uint32_t> by_name_;
  std::vector<Metadata> metadata_;  // by key
};

// The two parts of a file: where the header's text ends, the data begins. Throws Error, `source` first.
struct SafetensorsParts {
  std::string_view json;
  std::span<const std::byte> data;
};
SafetensorsParts split_safetensors(std::span<const std::byte> file, std::string_view source);

}  // namespace kiln
