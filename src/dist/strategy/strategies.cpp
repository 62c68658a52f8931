#include "dist/strategy/strategies.h"

#include "base/nearest_name.h"
#include "dist/strategy/ddp.h"
#include "dist/strategy/fsdp.h"
#include "dist/strategy/zero.h"
#include "dist/strategy/zero_simple.h"

namespace kiln {
namespace {

using Made = std::unique_ptr<Strategy>;

BucketOptions with(BucketOptions o, const StrategyOptions& given) {
  o.wire = given.wire;
  o.chunks = given.chunks;
  return o;
}

BucketOptions buckets_of(const StrategyOptions& o) { return with({.cap = o.bucket_mb * 1e6}, o); }

// A cap above the model makes it one bucket, whose copies take more than ZeRO saves.
BucketOptions small_buckets_of(const StrategyOptions& o) {
  BucketOptions small = buckets_of(o);
  small.share = 1.0 / 8;
  return small;
}

struct Row {
  std::string_view name;
  Made (*make)(const StrategyOptions&, RankContext&, Communicator&);
};

const Row kRows[] = {
    {"none",
     [](const StrategyOptions& o, RankContext& ctx, Communicator& comm) -> Made {
       if (o.chunks == 0) return std::make_unique<Strategy>();
       return std::make_unique<DdpStrategy>(ctx, comm, with(DdpStrategy::naive(), o));  // of one rank
     }},
    {"ddp:naive",
     [](const StrategyOptions& o, RankContext& ctx, Communicator& comm) -> Made {
       return std::make_unique<DdpStrategy>(ctx, comm, with(DdpStrategy::naive(), o));
     }},
    {"ddp:flat",
     [](const StrategyOptions& o, RankContext& ctx, Communicator& comm) -> Made {
       return std::make_unique<DdpStrategy>(ctx, comm, with(DdpStrategy::flat(), o));
     }},
    {"ddp:overlap",
     [](const StrategyOptions& o, RankContext& ctx, Communicator& comm) -> Made {
       return std::make_unique<DdpStrategy>(ctx, comm, with(DdpStrategy::overlap(), o));
     }},
    {"ddp:bucketed",
     [](const StrategyOptions& o, RankContext& ctx, Communicator& comm) -> Made {
       return std::make_unique<DdpStrategy>(ctx, comm,
                                            with(DdpStrategy::bucketed(o.bucket_mb * 1e6, o.wire), o));
     }},
    {"zero1:simple",
     [](const StrategyOptions& o, RankContext& ctx, Communicator& comm) -> Made {
       return std::make_unique<SimpleZeroStrategy>(ctx, comm, buckets_of(o));
     }},
    {"zero1",
     [](const StrategyOptions& o, RankContext& ctx, Communicator& comm) -> Made {
       return std::make_unique<ZeroStrategy>(ctx, comm, 1, small_buckets_of(o));
     }},
    {"zero2",
     [](const StrategyOptions& o, RankContext& ctx, Communicator& comm) -> Made {
       return std::make_unique<ZeroStrategy>(ctx, comm, 2, small_buckets_of(o));
     }},
    {"fsdp",
     [](const StrategyOptions& o, RankContext& ctx, Communicator& comm) -> Made {
       return std::make_unique<FsdpStrategy>(ctx, comm,
                                             FsdpOptions{.prefetch = o.prefetch, .chunks = o.chunks});
     }},
};

// The words people know the strategies by, else a slip of the finger.
std::string meant(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kAlsoCalled[] = {
      {"ddp", "ddp:bucketed"}, {"dp", "ddp:bucketed"}, {"zero", "zero1"},  {"zero-1", "zero1"},
      {"zero-2", "zero2"},     {"zero3", "fsdp"},      {"zero-3", "fsdp"}, {"fsdp2", "fsdp"},
  };
  std::string lower(name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const auto& [word, strategy] : kAlsoCalled)
    if (lower == word) return std::string(strategy);
  return nearest_name(name, strategy_names());
}

const Row& find(std::string_view name) {
  std::string all;
  for (const Row& r : kRows) {
    if (r.name == name) return r;
    all += cat(all.empty() ? "" : ", ", r.name);
  }
  const std::string near = meant(name);
  throw Error(cat("--strategy is '", name, "'; expected one of: ", all),
              near.empty() ? "" : cat("did you mean '", near, "'?"), ErrorKind::usage);
}

}  // namespace

std::vector<std::string_view> strategy_names() {
  std::vector<std::string_view> names;
  for (const Row& r : kRows) names.push_back(r.name);
  return names;
}

void check_strategy(std::string_view name, int ranks) {
  if (find(name).name == "none" && ranks > 1)
    throw Error(
        cat("--strategy is 'none', and there are ", ranks, " ranks: each would train a model of its own"),
        "ddp:bucketed is the usual one", ErrorKind::usage);
}

DType parse_wire(std::string_view option, std::string_view text) {
  if (text == "fp32") return DType::f32;
  if (text == "bf16") return DType::bf16;
  throw Error(cat(option, " is '", text, "'; expected fp32 or bf16"), {}, ErrorKind::usage);
}

std::unique_ptr<Strategy> make_strategy(std::string_view name, const StrategyOptions& options,
                                        RankContext& ctx, Communicator& comm) {
  check_strategy(name, comm.world());
  return find(name).make(options, ctx, comm);
}

}  // namespace kiln
