// Tensor: a counted buffer seen through a shape, strides and a dtype. Copies share memory. A tensor also
// carries its place on the tape (`value`), so that an op can tell what its gradient belongs to.
#pragma once

#include <array>
#include <cstdint>

#include "base/dtype.h"
#include "base/shape.h"
#include "device/allocator.h"
#include "device/device.h"

namespace kiln {

// A value on a rank's tape. The generation identifies a handle kept from an earlier step: it counts as a
// constant.
struct ValueId {
  int32_t index = -1;
  uint32_t generation = 0;
};

class Tensor {
 public:
  Tensor() = default;
  // Contiguous, from the start of the buffer.
  Tensor(Buffer buffer, const Shape& shape, DType dtype, Device device);
  // With the caller's strides, in elements: memory that was laid out elsewhere.
  using Strides = std::array<int64_t, Shape::kMaxRank>;
  Tensor(Buffer buffer, const Shape& shape, const Strides& strides, DType dtype, Device device);

  bool defined() const { return static_cast<bool>(buffer_); }
  const Shape& shape() const { return shape_; }
  int64_t dim(int axis) const { return shape_[axis]; }
  int64_t stride(int axis) const { return strides_[axis < 0 ? axis + shape_.rank() : axis]; }
  int64_t numel() const { return shape_.numel(); }
  Bytes bytes() const { return {static_cast<std::size_t>(numel()) * size_of(dtype_)}; }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  const Buffer& buffer() const { return buffer_; }

  // The first element. Handles are shared, so constness of the handle says nothing about the data.
  template <class T>
  T* data() const {
    check_dtype(dtype_of<T>());
    return reinterpret_cast<T*>(raw());
  }
  std::byte* raw() const { return buffer_.data() + offset_; }

  bool contiguous() const;
  // Distance in elements between consecutive rows (all axes but the last flattened); throws if rows are not
  // evenly spaced or not dense. Row kernels take such views, so splitting a packed projection costs no copy.
  int64_t row_stride() const;

  Tensor reshape(const Shape& shape) const;  // contiguous only; shares memory
  Tensor reshape_rows() const;               // as [rows, last]; rows may be strided; shares memory
  Tensor view_as(DType dtype) const;         // contiguous, one axis: the same bytes as another dtype
  Tensor narrow(int axis, int64_t begin, int64_t count) const;  // shares memory
  // The same view of nothing, and that view of another buffer of the same layout: for memory that is given up
  // and made again.
  Tensor without_buffer() const;
  Tensor on(const Buffer& buffer) const;
  // One flat tensor over this and `next`; undefined unless `next` begins where this ends in the same buffer.
  Tensor joined_with(const Tensor& next) const;
  Tensor detach() const {
    Tensor t = *this;
    t.value_ = {};
    return t;
  }

  ValueId value() const { return value_; }
  void set_value(ValueId v) { value_ = v; }

 private:
  void check_dtype(DType wanted) const {
    if (wanted != dtype_) throw Error(cat("a ", name_of(dtype_), " tensor was read as ", name_of(wanted)));
  }

  Buffer buffer_;
  Shape shape_;
  Strides strides_{};   // in elements
  int64_t offset_ = 0;  // in bytes
  DType dtype_ = DType::f32;
  Device device_;
  ValueId value_;
};

}  // namespace kiln
