// Any text is a manifest or an Error that names it. What is taken names plain files only, its tensors fit
// into them, and it is the same text when written out again. The text is also tried under a right checksum:
// else none would ever get past it.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/crc32c.h"
#include "base/error.h"
#include "bounds.h"
#include "train/checkpoint/manifest.h"
#include "train/checkpoint/train_state.h"

namespace {

void check(std::string_view text) {
  try {
    const kiln::Manifest m = kiln::parse_manifest(text, "input");
    for (const kiln::ManifestFile& f : m.files) {
      if (f.name.empty() || f.name == ".." || f.name.find('/') != std::string::npos) std::abort();
      std::uint64_t left = f.bytes;
      for (const kiln::ManifestTensor& t : f.tensors) {
        if (t.bytes > left) std::abort();
        left -= t.bytes;
      }
    }
    const std::string again = kiln::manifest_text(m);
    if (kiln::manifest_text(kiln::parse_manifest(again, "input")) != again) std::abort();
  } catch (const kiln::Error& error) {
    if (!std::string_view(error.what()).starts_with("input")) std::abort();
  }
}

void check_state(std::string_view text) {
  try {
    const kiln::TrainState s = kiln::parse_train_state(text, "input");
    const std::string again = kiln::train_state_json(s);
    if (kiln::train_state_json(kiln::parse_train_state(again, "input")) != again) std::abort();
  } catch (const kiln::Error& error) {
    if (!std::string_view(error.what()).starts_with("input")) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(text);
  check_state(text);
  char closing[32];
  std::snprintf(closing, sizeof closing, "\"crc32c\": \"%08x\"\n}\n",
                kiln::crc32c(std::as_bytes(std::span(text))));
  check(std::string(text) + closing);
  return 0;
}
