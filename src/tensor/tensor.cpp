#include "tensor/tensor.h"

namespace kiln {

Tensor::Tensor(Buffer buffer, const Shape& shape, DType dtype, Device device)
    : buffer_(std::move(buffer)), shape_(shape), dtype_(dtype), device_(device) {
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides_[i] = step;
    step *= shape[i];
  }
}

Tensor::Tensor(Buffer buffer, const Shape& shape, const Strides& strides, DType dtype, Device device)
    : buffer_(std::move(buffer)), shape_(shape), strides_(strides), dtype_(dtype), device_(device) {}

bool Tensor::contiguous() const {
  int64_t step = 1;
  for (int i = shape_.rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && strides_[i] != step) return numel() == 0;  // of nothing, nothing is out of place
    step *= shape_[i];
  }
  return true;
}

int64_t Tensor::row_stride() const {
  const int rank = shape_.rank();
  if (rank == 0) return 1;
  if (numel() == 0) return shape_[rank - 1];  // no two rows whose distance could be wrong
  if (shape_[rank - 1] > 1 && strides_[rank - 1] != 1) {
    throw Error(cat("rows of a ", shape_.str(), " view are not dense"), "make it contiguous first");
  }
  // Walk outwards over axes longer than 1; each must continue the spacing of the one inside it.
  int64_t stride = shape_[rank - 1], inner = 0;
  bool found = false;
  for (int i = rank - 2; i >= 0; --i) {
    if (shape_[i] == 1) continue;
    if (!found) {
      stride = strides_[i];
      found = true;
    } else if (strides_[i] != inner) {
      throw Error(cat("rows of a ", shape_.str(), " view are not evenly spaced"), "make it contiguous first");
    }
    inner = strides_[i] * shape_[i];
  }
  return stride;
}

Tensor Tensor::reshape(const Shape& shape) const {
  if (!contiguous())
    throw Error(cat("cannot reshape a strided ", shape_.str(), " view"), "make it contiguous first");
  if (shape.numel() != numel()) throw Error(cat("cannot reshape ", shape_.str(), " to ", shape.str()));
  Tensor t(buffer_, shape, dtype_, device_);
  t.offset_ = offset_;
  return t;
}

Tensor Tensor::reshape_rows() const {
  Tensor t = *this;
  t.value_ = {};
  t.shape_ = {shape_.rows(), shape_.last()};
  t.strides_ = {row_stride(), 1};
  return t;
}

Tensor Tensor::view_as(DType dtype) const {
  const std::size_t bytes = this->bytes().value;
  const bool aligned = static_cast<std::size_t>(offset_) % size_of(dtype) == 0;
  if (!contiguous() || !aligned || bytes % size_of(dtype) != 0) {
    throw Error(cat("cannot see ", shape_.str(), " ", name_of(dtype_), " as ", name_of(dtype)));
  }
  Tensor t(buffer_, {static_cast<int64_t>(bytes / size_of(dtype))}, dtype, device_);
  t.offset_ = offset_;
  return t;
}

Tensor Tensor::narrow(int axis, int64_t begin, int64_t count) const {
  if (axis < 0) axis += shape_.rank();
  if (axis < 0 || axis >= shape_.rank() || begin < 0 || count < 0 || begin > shape_[axis] - count) {
    throw Error(cat("cannot narrow axis ", axis, " of ", shape_.str(), " to ", count, " from ", begin));
  }
  Tensor t = *this;
  t.value_ = {};
  t.shape_[axis] = count;
  t.offset_ += begin * strides_[axis] * static_cast<int64_t>(size_of(dtype_));
  return t;
}

Tensor Tensor::without_buffer() const { return on({}); }

Tensor Tensor::on(const Buffer& buffer) const {
  Tensor t = detach();
  t.buffer_ = buffer;
  return t;
}

Tensor Tensor::joined_with(const Tensor& next) const {
  const bool adjacent = defined() && next.defined() && shape_.rank() == 1 && next.shape_.rank() == 1 &&
                        contiguous() && next.contiguous() && dtype_ == next.dtype_ &&
                        buffer_.data() == next.buffer_.data() && raw() + bytes().value == next.raw();
  if (!adjacent) return {};
  Tensor t = detach();
  t.shape_ = {numel() + next.numel()};
  return t;
}

}  // namespace kiln
