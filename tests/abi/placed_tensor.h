// For tests of the C interface: values laid out in a device's memory with any strides, and whether anything
// was written between them.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "autograd/host_floats.h"
#include "base/rng.h"
#include "kiln/attention.h"

namespace kiln {

inline constexpr float kUntouched = 7;

enum class MemoryLayout { dense, padded, rows_outside };  // the last: [rows, batch, heads, D]

class PlacedTensor {
 public:
  // batch x rows x heads * D; filled with values by name, or, without one, with a value that is never
  // computed.
  PlacedTensor(RankContext& memory, DType dtype, int64_t batch, int64_t rows, int64_t heads, int64_t D,
               MemoryLayout layout, const char* name = nullptr)
      : memory_(&memory), batch_(batch), rows_(rows), width_(heads * D) {
    const int64_t pad = layout == MemoryLayout::padded ? 16 : 0;
    row_stride_ = layout == MemoryLayout::rows_outside ? batch * width_ : width_ + pad;
    batch_stride_ = layout == MemoryLayout::rows_outside ? width_ : rows * row_stride_ + 2 * pad;
    const int64_t all = batch * rows * (width_ + pad) + 2 * pad * batch + 8;
    std::vector<float> floats(static_cast<std::size_t>(all), kUntouched);
    for (int64_t i = 0; name != nullptr && i < batch * rows * width_; ++i)
      floats[index(i)] = philox_normal(philox_key(3, name), static_cast<uint64_t>(i));
    flat_ = memory.empty({all}, dtype);
    upload_floats(memory, flat_, floats);
    view = {flat_.raw(), batch_stride_, row_stride_, D};
  }

  // [batch, rows, width], as rounded to the dtype.
  std::vector<double> values() const {
    const std::vector<float> floats = all();
    std::vector<double> out;
    for (int64_t i = 0; i < batch_ * rows_ * width_; ++i)
      out.push_back(static_cast<double>(floats[index(i)]));
    return out;
  }

  void expect_gaps_untouched(const char* name) const {
    std::vector<float> floats = all();
    for (int64_t i = 0; i < batch_ * rows_ * width_; ++i) floats[index(i)] = kUntouched;
    for (std::size_t i = 0; i < floats.size(); ++i)
      ASSERT_EQ(floats[i], kUntouched) << name << " was written at " << i << ", outside its rows";
  }

  kiln_attention_view view;

 private:
  std::size_t index(int64_t i) const {
    const int64_t row = i / width_;
    return static_cast<std::size_t>(row / rows_ * batch_stride_ + row % rows_ * row_stride_ + i % width_);
  }
  std::vector<float> all() const {
    std::vector<float> floats(static_cast<std::size_t>(flat_.numel()));
    download_floats(*memory_, flat_, floats);
    return floats;
  }

  RankContext* memory_;
  Tensor flat_;
  int64_t batch_, rows_, width_;
  int64_t batch_stride_ = 0, row_stride_ = 0;
};

// Full of what is no number: nothing that is in the scratch before may matter.
class Scratch {
 public:
  Scratch(RankContext& memory, std::size_t bytes)
      : tensor_(memory.empty({static_cast<int64_t>(bytes) + 256}, DType::u8)) {
    const std::vector<uint8_t> junk(bytes + 256, 0xff);
    memory.upload(tensor_, junk.data());
  }
  std::byte* raw() const {
    return tensor_.raw() + (256 - reinterpret_cast<std::uintptr_t>(tensor_.raw()) % 256) % 256;
  }

 private:
  Tensor tensor_;
};

struct ContextOwner {
  explicit ContextOwner(int device) {
    EXPECT_EQ(kiln_attention_create(device, &context), KILN_OK) << kiln_last_error();
  }
  ~ContextOwner() { kiln_attention_destroy(context); }
  ContextOwner(const ContextOwner&) = delete;
  ContextOwner& operator=(const ContextOwner&) = delete;

  kiln_attention_context* context = nullptr;
};

}  // namespace kiln
