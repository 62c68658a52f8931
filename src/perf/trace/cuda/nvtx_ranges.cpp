#include "perf/trace/nvtx_ranges.h"

#include <nvtx3/nvToolsExt.h>

#include "base/error.h"
#include "perf/trace/op_tracer.h"

namespace kiln {
namespace {

nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t kDomain = nvtxDomainCreateA("kiln");  // the tool's own handle, made once
  return kDomain;
}

void push(const char* name) {
  nvtxEventAttributes_t event = {};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = name;
  nvtxDomainRangePushEx(domain(), &event);
}

void pop() { nvtxDomainRangePop(domain()); }

}  // namespace

NvtxRange::NvtxRange(const char* name) { push(name); }

NvtxRange::~NvtxRange() { pop(); }

NvtxRanges::NvtxRanges(RankContext& ctx) : ctx_(ctx) { ctx.add_observer(this); }

NvtxRanges::~NvtxRanges() {
  ctx_.remove_observer(this);
  for (std::size_t i = 0; i < open_.size(); ++i) pop();
}

void NvtxRanges::on_op_begin(RankContext& ctx, const OpEvent& e) {
  if (depth_++ > 0) return;
  const std::vector<std::string> path = range_path(phase_of(ctx), std::string(e.scope));
  std::size_t same = 0;
  while (same < path.size() && same < open_.size() && path[same] == open_[same]) ++same;
  for (; open_.size() > same; open_.pop_back()) pop();
  for (; open_.size() < path.size(); open_.push_back(path[open_.size()])) push(path[open_.size()].c_str());
  push(cat(e.op, " ", e.variant).c_str());
}

void NvtxRanges::on_op_end(RankContext&, const OpEvent&) {
  if (--depth_ == 0) pop();
}

}  // namespace kiln
