// Any bytes are a safetensors file or an Error that names it, and which of the two is decided twice: by the
// reader, event by event, and here by the rules applied to the whole document. They must agree.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json_reader.h"
#include "base/safetensors_header.h"
#include "bounds.h"

namespace {

// Bytes of a tensor by its entry; throws where the entry is not as it must be.
std::pair<uint64_t, uint64_t> range_of(const kiln::Json& entry) {
  static const std::map<std::string, unsigned __int128> kBits = {
      {"F64", 64}, {"F32", 32},    {"F16", 16},    {"BF16", 16},   {"I64", 64},    {"U64", 64},   {"I32", 32},
      {"U32", 32}, {"I16", 16},    {"U16", 16},    {"I8", 8},      {"U8", 8},      {"BOOL", 8},   {"C64", 64},
      {"F4", 4},   {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}};
  const auto wrong = [] { throw kiln::Error("not a tensor"); };
  if (!entry.is_object() || entry.size() != 3) wrong();
  for (const char* key : {"dtype", "shape", "data_offsets"}) {
    if (!entry.contains(key)) wrong();
  }
  const kiln::Json &dtype = entry["dtype"], &shape = entry["shape"], &offsets = entry["data_offsets"];
  if (!dtype.is_string() || !kBits.contains(dtype.text()) || !shape.is_array() || !offsets.is_array())
    wrong();
  if (offsets.size() != 2 || shape.size() > kiln::SafetensorsHeader::kMostAxes) wrong();
  for (const kiln::Json* list : {&shape, &offsets}) {
    for (const kiln::Json& n : *list) {
      if (!n.is_number_unsigned()) wrong();
    }
  }
  unsigned __int128 elements = 1;
  for (const kiln::Json& n : shape) {
    elements *= n.get<uint64_t>();
    if (elements > UINT64_MAX) wrong();
  }
  const unsigned __int128 bits = elements * kBits.at(dtype.text());
  const auto begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  if (bits > UINT64_MAX || bits % 8 != 0 || end < begin || end - begin != static_cast<uint64_t>(bits / 8))
    wrong();
  return {begin, end};
}

bool allowed_by_rules(std::string_view file) {
  try {
    uint64_t length = 0;
    if (file.size() < 8) return false;
    std::memcpy(&length, file.data(), 8);
    if (length > file.size() - 8) return false;
    const std::string_view text = file.substr(8, length);
    if (!text.starts_with('{') || text.find('\0') != std::string_view::npos) return false;
    const kiln::Json page = kiln::parse_json(text, {}, "rules");
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    for (const auto& [name, entry] : page.items()) {
      if (name == "__metadata__") {
        if (!entry.is_object()) return false;
        for (const auto& [key, value] : entry.items()) {
          if (!value.is_string()) return false;
        }
      } else {
        if (name.size() > kiln::SafetensorsHeader::kLongestName) return false;
        ranges.push_back(range_of(entry));
      }
    }
    std::sort(ranges.begin(), ranges.end());
    uint64_t at = 0;
    for (const auto& [begin, end] : ranges) {
      if (begin != at) return false;
      at = end;
    }
    return at == file.size() - 8 - length;
  } catch (const kiln::Error&) {
    return false;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  bool taken = false;
  try {
    const kiln::SafetensorsParts parts =
        kiln::split_safetensors(std::as_bytes(std::span(data, size)), "input");
    const kiln::SafetensorsHeader header(parts.json, parts.data.size(), "input");
    for (std::size_t i = 0; i < header.size(); ++i) {
      const auto found = header.find(header[i].name);
      if (!found || found->begin != header[i].begin || found->end > parts.data.size()) std::abort();
      (void)found->shape_text();
    }
    taken = true;
  } catch (const kiln::Error& error) {
    if (!std::string_view(error.what()).starts_with("input: ")) std::abort();
  }
  if (taken != allowed_by_rules({reinterpret_cast<const char*>(data), size})) std::abort();
  return 0;
}
