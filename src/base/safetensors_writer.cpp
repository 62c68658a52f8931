#include "base/safetensors_writer.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/json.h"
#include "base/units.h"

namespace kiln {
namespace {

std::string quoted(const std::string& text) { return Json(text).dump(); }

std::string header_text(const std::string& path, const std::vector<SafetensorsDeclaration>& tensors,
                        const std::vector<std::pair<std::string, std::string>>& metadata) {
  std::string text = "{";
  const auto comma = [&] { return text.size() == 1 ? "" : ","; };
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (std::size_t i = 0; i < metadata.size(); ++i)
      text += cat(i == 0 ? "" : ",", quoted(metadata[i].first), ":", quoted(metadata[i].second));
    text += "}";
  }
  uint64_t at = 0;
  for (const SafetensorsDeclaration& t : tensors) {
    const auto unit = static_cast<uint64_t>(std::max(1, bits_of(t.type) / 8));
    if (at % unit != 0)
      throw Error(cat(path, ": tensor '", t.name, "' of ", name_of(t.type), " would begin at byte ", at,
                      " of the data, not a multiple of ", unit),
                  "declare wider types first");
    uint64_t end = 0;
    if (__builtin_add_overflow(at, t.bytes(), &end)) throw Error(cat(path, ": too many bytes to count"));
    text += cat(comma(), quoted(t.name), ":{\"dtype\":\"", name_of(t.type), "\",\"shape\":[");
    for (std::size_t i = 0; i < t.shape.size(); ++i) text += cat(i == 0 ? "" : ",", t.shape[i]);
    text += cat("],\"data_offsets\":[", at, ",", end, "]}");
    at = end;
  }
  text += "}";
  text.resize(round_up(text.size(), 8), ' ');  // the data begins at a multiple of 8
  (void)SafetensorsHeader(text, at, path);     // what is written is held to what is read
  return text;
}

}  // namespace

uint64_t SafetensorsDeclaration::bytes() const {
  uint64_t bits = static_cast<uint64_t>(bits_of(type));
  for (const uint64_t n : shape) {
    if (__builtin_mul_overflow(bits, n, &bits))
      throw Error(cat("tensor '", name, "': too many bytes to count"));
  }
  return bits / 8;
}

std::string safetensors_front(const std::string& path, const std::vector<SafetensorsDeclaration>& tensors,
                              const std::vector<std::pair<std::string, std::string>>& metadata) {
  const std::string header = header_text(path, tensors, metadata);
  const uint64_t length = header.size();
  std::string front(sizeof length, '\0');
  std::memcpy(front.data(), &length, sizeof length);
  return front + header;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<SafetensorsDeclaration> tensors,
                                     const std::vector<std::pair<std::string, std::string>>& metadata)
    : tensors_(std::move(tensors)), front_(safetensors_front(path, tensors_, metadata)), file_(path) {
  file_.append(front_);
  skip_full();
}

// Moves on to the first tensor that still wants bytes.
void SafetensorsWriter::skip_full() {
  while (left_ == 0 && checksums_.size() < tensors_.size()) {
    left_ = tensors_[checksums_.size()].bytes();
    checksums_.push_back(0);
  }
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  if (bytes.size() > left_) {
    throw Error(cat(
        file_.path(), ": ", bytes.size(), " bytes for ",
        left_ == 0 ? std::string("no tensor") : cat("tensor '", tensors_[checksums_.size() - 1].name, "'"),
        ", which takes ", left_, " more"));
  }
  checksums_.back() = crc32c(bytes, checksums_.back());
  file_.append(bytes);
  left_ -= bytes.size();
  skip_full();
}

std::vector<uint32_t> SafetensorsWriter::commit() {
  if (left_ != 0)
    throw Error(cat(file_.path(), ": tensor '", tensors_[checksums_.size() - 1].name, "' lacks ", left_,
                    " bytes; it is not written"));
  file_.commit();
  return checksums_;
}

}  // namespace kiln
