#include "perf/memory/residual_ledger.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include "autograd/tape.h"

namespace kiln {
namespace {

bool under(std::string_view path, std::string_view scope) {
  return scope.empty() ||
         (path.starts_with(scope) && (path.size() == scope.size() || path[scope.size()] == '.'));
}

// Which bytes of a buffer are counted. Views of a packed tensor (columns of q, k and v) do not overlap; the
// same view twice is the same bytes; and no more than the buffer can be kept.
class CountedBytes {
 public:
  std::size_t add(const Tensor& t) {
    Counted& c = buffers_[t.buffer().data()];
    const std::size_t bytes = t.bytes().value;
    if (!c.views.emplace(t.raw(), bytes).second) return 0;
    const std::size_t fresh = std::min(bytes, t.buffer().bytes() - std::min(c.bytes, t.buffer().bytes()));
    c.bytes += fresh;
    return fresh;
  }

 private:
  struct Counted {
    std::set<std::pair<const std::byte*, std::size_t>> views;
    std::size_t bytes = 0;
  };
  std::map<const std::byte*, Counted> buffers_;
};

}  // namespace

std::size_t ResidualLedger::bytes() const {
  std::size_t sum = 0;
  for (const KeptTensor& s : saved) sum += s.new_bytes;
  return sum;
}

std::size_t ResidualLedger::input_bytes() const {
  std::size_t sum = 0;
  for (const KeptTensor& s : saved) sum += s.input ? s.new_bytes : 0;
  return sum;
}

std::size_t ResidualLedger::loaded() const {
  std::size_t sum = 0;
  for (const BackwardLoads& l : loads) sum += l.total();
  return sum;
}

std::vector<ResidualShare> largest_shares(const ResidualLedger& ledger, std::size_t count) {
  std::vector<ResidualShare> shares;
  for (const KeptTensor& s : ledger.saved) {
    auto it = std::find_if(shares.begin(), shares.end(), [&](const auto& r) { return r.op == s.op; });
    if (it == shares.end()) it = shares.insert(shares.end(), {s.op});
    it->bytes += s.new_bytes;
  }
  const auto all = static_cast<double>(ledger.bytes());
  for (ResidualShare& r : shares) r.share = all == 0 ? 0 : static_cast<double>(r.bytes) / all;
  std::stable_sort(shares.begin(), shares.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  if (shares.size() > count) shares.resize(count);
  return shares;
}

ResidualWatch::ResidualWatch(RankContext& ctx) : ctx_(ctx) { ctx.add_observer(this); }
ResidualWatch::~ResidualWatch() { ctx_.remove_observer(this); }

void ResidualWatch::name_input(const std::string& name, const Tensor& t) { wrote(t, {name, true}); }

void ResidualWatch::wrote(const Tensor& t, Writer writer) {
  if (!t.defined()) return;
  const std::byte* first = t.raw();
  if (t.contiguous()) {  // what was in these bytes before is gone
    writers_.erase(writers_.lower_bound(first), writers_.lower_bound(first + t.bytes().value));
    if (first == t.buffer().data()) whole_[first] = writer;
  }
  writers_[first] = std::move(writer);
}

void ResidualWatch::on_op_end(RankContext& /*ctx*/, const OpEvent& event) {
  if (event.pass != Pass::forward) return;
  std::size_t bytes = 0;
  for (const NamedTensor& o : event.outputs) {
    if (!o.tensor.defined()) continue;
    bytes += o.tensor.bytes().value;
    wrote(o.tensor, {cat(event.op, " ", o.name), false});
  }
  calls_.push_back({std::string(event.op), bytes});
}

ResidualWatch::Writer ResidualWatch::writer_of(const Tensor& t, const std::string& own) const {
  if (const auto it = writers_.find(t.raw()); it != writers_.end()) return it->second;
  const auto it = whole_.find(t.buffer().data());  // a view of a buffer that was written whole
  return it == whole_.end() ? Writer{own, false} : it->second;
}

ResidualLedger ResidualWatch::take(std::string_view scope) const {
  ResidualLedger ledger;
  CountedBytes counted;
  auto call = calls_.begin();
  for (const Node& node : ctx_.tape().nodes()) {
    std::size_t gradients = 0;
    const auto found = std::find_if(call, calls_.end(), [&](const Call& c) { return c.op == node.op; });
    if (found != calls_.end()) {  // a split is a node and no call
      gradients = found->output_bytes;
      call = std::next(found);
    }
    const bool wanted = under(*node.scope, scope);
    BackwardLoads loads{node.op, node.variant, *node.scope, 0, gradients, 0};
    for (const ParamRef& p : node.params)
      loads.params += static_cast<std::size_t>(p.shape().numel()) * size_of(p.param->value.dtype());
    for (const NamedTensor& s : node.saved) {
      if (!s.tensor.defined()) continue;
      const Writer writer = writer_of(s.tensor, cat(node.op, " ", s.name));
      KeptTensor row{
          node.op,          node.variant,           *node.scope,           s.name,      s.tensor.shape(),
          s.tensor.dtype(), s.tensor.bytes().value, counted.add(s.tensor), writer.name, writer.input};
      loads.saved += row.bytes;
      if (wanted) ledger.saved.push_back(std::move(row));
    }
    const bool reads = loads.saved + loads.gradients + loads.params > 0;
    if (wanted && reads) ledger.loads.insert(ledger.loads.begin(), std::move(loads));
  }
  return ledger;
}

}  // namespace kiln
