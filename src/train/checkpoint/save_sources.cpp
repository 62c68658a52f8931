#include "train/checkpoint/save_sources.h"

#include <algorithm>
#include <span>

#include "model/param_values.h"
#include "train/checkpoint/optimizer_values.h"

namespace kiln {
namespace {

constexpr int64_t kElements = int64_t{1} << 20;  // at a time: what a download needs beside the copy

class StagedValues final : public NamedValues {
 public:
  StagedValues(const char* what, NamedValues& from, std::span<float> memory)
      : NamedValues(what), memory_(memory) {
    take_places(from);
    const int64_t all = extent();
    if (all > static_cast<int64_t>(memory.size()))
      throw Error(cat("the copy of the ", what, " is ", memory.size(), " values long; expected ", all));
    for (int64_t at = 0; at < all; at += kElements)
      from.download(at, memory_.subspan(static_cast<std::size_t>(at),
                                        static_cast<std::size_t>(std::min(kElements, all - at))));
  }

  void download(int64_t at, std::span<float> out) override {
    std::copy_n(memory_.begin() + at, out.size(), out.begin());
  }

 private:
  void upload(int64_t, std::span<const float>) override { throw Error("a copy for a save is only read"); }

  std::span<float> memory_;
};

}  // namespace

SaveSources device_sources(const CheckpointParts& parts) {
  SaveSources s{std::make_unique<ParamValues>(parts.ctx, parts.model.params()), {}};
  for (const OptimizerState& state : parts.optimizer.state())
    s.state.emplace_back(state.name, std::make_unique<OptimizerValues>(parts.ctx, parts.model.params(),
                                                                       parts.optimizer, state));
  return s;
}

int64_t staged_elements(const ParamStore& store, const Optimizer& optimizer) {
  int64_t n = store.low().defined() ? store.low().numel() : store.values().numel();
  for (const OptimizerState& state : optimizer.state()) n += state.values.numel();
  return n;
}

StagingMemory::StagingMemory(const CheckpointParts& parts)
    : ctx_(parts.ctx), elements_(staged_elements(parts.model.params(), parts.optimizer)) {
  if (ctx_.device().type == DeviceType::cpu) {
    on_cpu_ = ctx_.empty({elements_}, DType::f32, Tag::data);
    memory_ = reinterpret_cast<float*>(on_cpu_.raw());
    return;
  }
  memory_ = static_cast<float*>(ctx_.backend().allocate_pinned(bytes()));
  if (memory_ == nullptr) throw Error(cat("no ", bytes(), " bytes of pinned host memory for --async-save"));
}

StagingMemory::~StagingMemory() {
  if (!on_cpu_.defined()) ctx_.backend().release_pinned(memory_);
}

SaveSources StagingMemory::copy(const CheckpointParts& parts) {
  SaveSources from = device_sources(parts), to;
  std::span<float> free(memory_, static_cast<std::size_t>(elements_));
  const auto staged = [&](const char* what, NamedValues& values) {
    auto copied = std::make_unique<StagedValues>(what, values, free);
    free = free.subspan(static_cast<std::size_t>(copied->extent()));
    return copied;
  };
  to.weights = staged("weight", *from.weights);
  for (const auto& [name, values] : from.state)
    to.state.emplace_back(name, staged("optimizer state", *values));
  return to;
}

}  // namespace kiln
