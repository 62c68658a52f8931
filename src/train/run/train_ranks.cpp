#include "train/run/train_ranks.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "dist/comm/reduce_ranks.h"
#include "dist/launch/rank_limit.h"
#include "dist/launch/transports.h"
#include "train/checkpoint/checkpoint_names.h"
#include "train/presets.h"
#include "train/run/run_record.h"
#include "train/run/train_options.h"

namespace kiln {
namespace {

double read(RankContext& ctx, const Tensor& one) {
  double value = 0;
  ctx.download(&value, one);
  return value;
}

Tensor written(RankContext& ctx, double value) {
  const Tensor one = ctx.empty({1}, DType::f64, Tag::workspace);  // not part of the step that was predicted
  ctx.upload(one, &value);
  return one;
}

}  // namespace

const TrainingText& SharedDataset::text(const TrainRequest& r, ThreadPool& pool) {
  const std::lock_guard lock(mutex_);
  if (!text_) text_ = read_training_text(r.text, text_of(r), pool);
  return *text_;
}

RanksRequest ranks_of(const TrainRequest& r) {
  RanksRequest ranks = launched_request();
  const bool launched = ranks.world > 1 || find_transport(ranks.transport).processes;
  const bool processes = r.transport != "auto" && find_transport(r.transport).processes;
  if (launched && r.ranks != ranks.world)
    throw Error(cat("--ranks is ", r.ranks, ", and ", ranks.world, " were started"), "leave --ranks out",
                ErrorKind::usage);
  const bool told = std::getenv(kTransportVariable) != nullptr;  // else it was a guess
  if (launched && !told && processes) ranks.transport = r.transport;
  if (launched && r.transport != "auto" && r.transport != ranks.transport)
    throw Error(cat("--transport is ", r.transport, ", and the ranks were started with ", ranks.transport),
                cat("`kiln run --transport ", r.transport, " ...` starts them so"), ErrorKind::usage);
  if (!launched && processes)
    throw Error(cat("--transport is ", r.transport, ", and its ranks have not been started"),
                cat("kiln run --nproc ", std::max(2, r.ranks), " --transport ", r.transport, " -- train ..."),
                ErrorKind::usage);
  const TransportRow& row = find_transport(ranks.transport);
  if (!row.processes && r.ranks > kMaxThreadRanks)
    throw Error(cat("--ranks is ", r.ranks, "; at most ", kMaxThreadRanks, " can be threads of one process"),
                {}, ErrorKind::usage);
  if (!row.processes) check_rank_count("--ranks", r.ranks, r.oversubscribe);
  if (r.canonical) {
    ranks.reduction = ReductionOrder::deterministic;  // NCCL would choose its own order
    ranks.comm.reduction_in_scratch = row.reduction_in_scratch;
  }
  ranks.world = r.ranks;
  ranks.config = options_text(r);
  if (!r.link.empty()) ranks.comm.link = LinkModel::parse(r.link, "--link");
  return ranks;
}

void take_launched_ranks(TrainRequest& r, bool given) {
  const RanksRequest launched = launched_request();
  if (!given && launched.world > 1) r.ranks = launched.world;
}

RankOptions rank_options_of(const TrainRequest& r, int ranks) {
  RankOptions options;
  options.threads = r.threads;
  options.world = ranks;
  options.seed = r.seed;
  options.device = r.device;
  options.variants = choose_variants(r.preset, r.variants, r.device.target).ops;
  return options;
}

bool any_rank(RankContext& ctx, Communicator& comm, bool mine) {
  if (comm.world() == 1) return mine;
  const Tensor yes = written(ctx, mine ? 1 : 0);
  comm.all_reduce(ctx, yes, "whether to stop").wait(ctx);
  return read(ctx, yes) > 0;
}

std::string same_text(RankContext& ctx, Communicator& comm, std::string text, const char* what) {
  if (comm.world() == 1) return text;
  const Tensor size = written(ctx, static_cast<double>(text.size()));
  comm.broadcast(ctx, size, 0, cat("size of ", what)).wait(ctx);
  const auto bytes = static_cast<int64_t>(read(ctx, size));
  if (bytes == 0) return {};
  text.resize(static_cast<std::size_t>(bytes));
  const Tensor letters = ctx.empty({bytes}, DType::u8, Tag::workspace);
  ctx.upload(letters, text.data());
  comm.broadcast(ctx, letters, 0, what).wait(ctx);
  ctx.download(text.data(), letters);
  return text;
}

std::optional<TuneFile> same_tuning(RankContext& ctx, Communicator& comm,
                                    const std::optional<TuneFile>& first,
                                    const std::optional<TunePlace>& here) {
  if (comm.world() == 1) return first;
  const std::string text =
      same_text(ctx, comm, comm.rank() == 0 && first ? tune_text(*first) : std::string(), "GEMM choices");
  if (text.empty()) return std::nullopt;
  TuneFile file = parse_tune_file(text, "choices of the first rank");
  if (here && !why_not_here(file, *here, "").empty()) return std::nullopt;
  return file;
}

std::optional<std::string> same_checkpoint(RankContext& ctx, Communicator& comm, const std::string& run,
                                           const std::optional<std::string>& found) {
  if (comm.world() == 1) return found;
  const auto name = found ? std::filesystem::path(*found).filename().string() : std::string();
  const Tensor step = written(ctx, static_cast<double>(step_of_checkpoint(name).value_or(0)));
  comm.broadcast(ctx, step, 0, "the checkpoint to resume").wait(ctx);
  const auto from = static_cast<int64_t>(read(ctx, step));
  if (from == 0) return std::nullopt;
  return (std::filesystem::path(run) / "checkpoints" / checkpoint_name(from)).string();
}

std::function<bool(bool)> agreement(RankContext& ctx, Communicator& comm, int64_t done) {
  const int64_t every = ctx.device().type == DeviceType::cuda ? 8 : 1;
  return [&ctx, &comm, every, done, asked = int64_t{0}, note = step_notes()](bool mine) mutable {
    note(done + asked + 1);
    return asked++ % every == 0 && any_rank(ctx, comm, mine);
  };
}

}  // namespace kiln
