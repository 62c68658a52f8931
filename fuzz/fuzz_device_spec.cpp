// Any text is a device, which prints as a name of itself, or wrong usage with a message; nothing else may
// come out.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "bounds.h"
#include "device/device.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const kiln::Bounds bounded(size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const kiln::Device device = kiln::Device::parse(text);
    if (device.index < 0 || !(kiln::Device::parse(device.str()) == device)) std::abort();
  } catch (const kiln::Error& error) {
    if (error.kind() != kiln::ErrorKind::usage || *error.what() == '\0' || error.hint().empty()) std::abort();
  }
  return 0;
}
