#include "model/named_values.h"

#include <algorithm>

namespace kiln {

void NamedValues::add(const Param& p, int64_t begin, int64_t count, int64_t at) {
  const int64_t columns = p.shape.rank() == 1 ? 1 : p.shape[1];
  for (const ParamView& v : p.views) {
    Weight& w = weights_[v.name];
    w.shape = p.shape;
    w.shape[0] = v.rows;
    const int64_t view = v.row_begin * columns;
    const int64_t first = std::max(begin, view), last = std::min(begin + count, view + v.rows * columns);
    if (first < last) w.pieces.push_back({first - view, last - first, at + first - begin});
  }
}

// f(offset, piece offset, count) for the parts of elements [begin, begin + count) that are here; returns how
// many elements that is.
template <class F>
int64_t NamedValues::for_each_part(const Weight& w, int64_t begin, int64_t count, F&& f) {
  int64_t here = 0;
  for (const ValuePiece& p : w.pieces) {
    const int64_t first = std::max(begin, p.begin), last = std::min(begin + count, p.begin + p.count);
    if (first >= last) continue;
    f(first - begin, p.at + first - p.begin, last - first);
    here += last - first;
  }
  return here;
}

const NamedValues::Weight& NamedValues::find(const WeightSpec& weight, int64_t first_row,
                                             int64_t count) const {
  const auto found = weights_.find(weight.name);
  if (found == weights_.end()) throw Error(cat("the model has no ", what_, " ", weight.name));
  const Shape& shape = found->second.shape;
  if (!(shape == weight.shape))
    throw Error(cat(what_, " ", weight.name, " is ", shape.str(), " in the model, not ", weight.shape.str()));
  if (first_row < 0 || first_row * weight.columns() + count > shape.numel())
    throw Error(cat(what_, " ", weight.name, " ", shape.str(), ": ", count, " values from row ", first_row,
                    " on reach beyond its end"));
  return found->second;
}

void NamedValues::read(const WeightSpec& weight, int64_t first_row, std::span<float> out) {
  const auto count = static_cast<int64_t>(out.size());
  const Weight& w = find(weight, first_row, count);
  const int64_t here =
      for_each_part(w, first_row * weight.columns(), count, [&](int64_t offset, int64_t at, int64_t n) {
        download(at, out.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(n)));
      });
  if (here != count)
    throw Error(cat(what_, " ", weight.name, " is sharded over ranks: ", here, " of ", count,
                    " values are on this one"),
                "gather it first");
}

void NamedValues::write(const WeightSpec& weight, int64_t first_row, std::span<const float> values) {
  const auto count = static_cast<int64_t>(values.size());
  for_each_part(find(weight, first_row, count), first_row * weight.columns(), count,
                [&](int64_t offset, int64_t at, int64_t n) {
                  upload(at, values.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(n)));
                });
}

bool NamedValues::holds(const WeightSpec& weight, int64_t first_row, int64_t rows) const {
  const int64_t count = rows * weight.columns();
  return for_each_part(find(weight, first_row, count), first_row * weight.columns(), count,
                       [](int64_t, int64_t, int64_t) {}) > 0;
}

std::span<const ValuePiece> NamedValues::pieces(const std::string& name) const {
  const auto found = weights_.find(name);
  if (found == weights_.end()) return {};
  return found->second.pieces;
}

}  // namespace kiln
