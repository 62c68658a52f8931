#include "model/named_values.h"

#include <algorithm>

namespace kiln {
namespace {

// Elements [first, last) of rows of `columns`, which are columns of a matrix of `whole_columns` from element
// `corner` on: the rest of a row, whole rows, the beginning of a row.
void add_column_part(std::vector<ValuePiece>& pieces, int64_t first, int64_t last, int64_t columns,
                     int64_t whole_columns, int64_t corner, int64_t at) {
  const auto place = [&](int64_t i) { return corner + i / columns * whole_columns + i % columns; };
  for (int64_t i = first; i < last;) {
    const int64_t in_row = i % columns, rows = in_row == 0 ? (last - i) / columns : 0;
    const ElementRuns elements = rows > 1
                                     ? ElementRuns{place(i), columns, rows, whole_columns}
                                     : ElementRuns::range(place(i), std::min(columns - in_row, last - i));
    pieces.push_back({elements, at + i - first});
    i += elements.count();
  }
}

}  // namespace

void NamedValues::add(const Param& p, const ParamPart& part, int64_t begin, int64_t count, int64_t at) {
  const int64_t columns = p.shape.rank() == 1 ? 1 : p.shape[1];
  const int64_t whole_columns = part.whole_columns > 0 ? part.whole_columns : columns;
  for (std::size_t i = 0; i < p.views.size(); ++i) {
    const ParamView& v = p.views[i];
    const ParamPart::Rows rows = part.rows.empty() ? ParamPart::Rows{0, v.rows} : part.rows[i];
    Weight& w = weights_[v.name];
    w.shape = p.shape;
    w.shape[0] = rows.whole;
    if (p.shape.rank() > 1) w.shape[1] = whole_columns;
    const int64_t view = v.row_begin * columns;
    const int64_t first = std::max(begin, view), last = std::min(begin + count, view + v.rows * columns);
    if (first >= last) continue;
    const int64_t corner = rows.first * whole_columns + part.first_column;
    if (columns == whole_columns)
      w.pieces.push_back({ElementRuns::range(corner + first - view, last - first), at + first - begin});
    else
      add_column_part(w.pieces, first - view, last - view, columns, whole_columns, corner,
                      at + first - begin);
  }
}

// f(piece, first, last) for each piece of which numbers `first` up to `last` are among elements
// [begin, begin + count) of the weight; returns how many those are.
template <class F>
int64_t NamedValues::for_each_part(const Weight& w, int64_t begin, int64_t count, F&& f) {
  int64_t here = 0;
  for (const ValuePiece& p : w.pieces) {
    const int64_t first = p.elements.before(begin), last = p.elements.before(begin + count);
    if (first >= last) continue;
    f(p, first, last);
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
  const int64_t begin = first_row * weight.columns();
  std::vector<float> values;  // of several runs: fetched at once
  const int64_t here = for_each_part(
      find(weight, first_row, count), begin, count, [&](const ValuePiece& p, int64_t first, int64_t last) {
        if (p.elements.runs == 1) {
          const auto to = static_cast<std::size_t>(p.elements.begin + first - begin);
          download(p.at + first, out.subspan(to, static_cast<std::size_t>(last - first)));
          return;
        }
        values.resize(static_cast<std::size_t>(last - first));
        download(p.at + first, values);
        p.elements.for_each_run(first, last, [&](int64_t element, int64_t offset, int64_t n) {
          std::copy_n(values.begin() + offset, n, out.begin() + (element - begin));
        });
      });
  if (here != count)
    throw Error(cat(what_, " ", weight.name, " is sharded over ranks: ", here, " of ", count,
                    " values are on this one"),
                "gather it first");
}

void NamedValues::write(const WeightSpec& weight, int64_t first_row, std::span<const float> values) {
  const auto count = static_cast<int64_t>(values.size());
  const int64_t begin = first_row * weight.columns();
  std::vector<float> joined;  // several runs: sent at once
  for_each_part(find(weight, first_row, count), begin, count,
                [&](const ValuePiece& p, int64_t first, int64_t last) {
                  if (p.elements.runs == 1) {
                    const auto from = static_cast<std::size_t>(p.elements.begin + first - begin);
                    upload(p.at + first, values.subspan(from, static_cast<std::size_t>(last - first)));
                    return;
                  }
                  joined.resize(static_cast<std::size_t>(last - first));
                  p.elements.for_each_run(first, last, [&](int64_t element, int64_t offset, int64_t n) {
                    std::copy_n(values.begin() + (element - begin), n, joined.begin() + offset);
                  });
                  upload(p.at + first, joined);
                });
}

bool NamedValues::holds(const WeightSpec& weight, int64_t first_row, int64_t rows) const {
  const int64_t count = rows * weight.columns();
  return for_each_part(find(weight, first_row, count), first_row * weight.columns(), count,
                       [](const ValuePiece&, int64_t, int64_t) {}) > 0;
}

std::span<const ValuePiece> NamedValues::pieces(const std::string& name) const {
  const auto found = weights_.find(name);
  if (found == weights_.end()) return {};
  return found->second.pieces;
}

int64_t NamedValues::extent() const {
  int64_t end = 0;
  for (const auto& [name, weight] : weights_) {
    for (const ValuePiece& p : weight.pieces) end = std::max(end, p.at + p.elements.count());
  }
  return end;
}

}  // namespace kiln
