// A checkpoint written by all ranks of a run. The files are planned to the byte by everybody; the first rank
// makes them; each rank writes its pieces into their places and sends what they add to the tensors'
// checksums; the first combines those, writes the manifest and publishes the folder.
#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <queue>

#include "base/crc32c.h"
#include "base/folder.h"
#include "base/on_exit.h"
#include "base/placed_file.h"
#include "dist/launch/rank_agreement.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/checkpoint/checkpoint_names.h"
#include "train/checkpoint/optimizer_values.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kElements = int64_t{1} << 20;  // at a time

// Elements of a tensor that a rank has. Tensors are counted through all files.
struct Slice {
  int64_t tensor;
  ElementRuns elements;
  friend auto operator<=>(const Slice&, const Slice&) = default;
};

struct OwnSlice {
  Slice slice;
  NamedValues* values;
  int64_t at;
};

class RankSave {
 public:
  explicit RankSave(const CheckpointParts& parts)
      : ctx_(parts.ctx),
        comm_(*parts.comm),
        config_(saved_config(parts)),
        files_(tensor_files(config_, parts.optimizer)),
        weights_(parts.ctx, parts.model.params()) {
    int64_t tensor = 0;
    for (std::size_t f = 0; f + 1 < files_.size(); ++f) {  // the last is the optimizer's
      for (const SafetensorsDeclaration& t : files_[f].tensors) list(weights_, t.name, tensor++);
    }
    const std::vector<WeightSpec> specs = weight_specs(config_.model);
    for (const OptimizerState& state : parts.optimizer.state()) {
      OptimizerValues& values = state_.emplace_back(parts.ctx, parts.model.params(), parts.optimizer, state);
      for (const WeightSpec& w : specs) list(values, w.name, tensor++);
    }
    checksums_.resize(static_cast<std::size_t>(tensor));
  }

  void create(const std::string& folder) const {
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw Error(cat("cannot make the folder ", folder, ": ", error.message()));
    for (const TensorFile& f : files_)
      PlacedFile::create((fs::path(folder) / f.name).string(), f.front, f.bytes);
  }

  // Who writes what: of what several have, one rank, another for each tensor.
  void agree() {
    std::vector<double> mine;
    for (const OwnSlice& s : own_) {
      const ElementRuns& e = s.slice.elements;
      for (const int64_t n : {s.slice.tensor, e.begin, e.run, e.runs, e.stride})
        mine.push_back(static_cast<double>(n));
    }
    std::map<Slice, std::vector<int>> holders;
    const auto all = all_gather_numbers(ctx_, comm_, mine, "checkpoint slices");
    for (std::size_t r = 0; r < all.size(); ++r) {
      for (std::size_t i = 0; i + 5 <= all[r].size(); i += 5) {
        const auto n = [&](std::size_t k) { return static_cast<int64_t>(all[r][i + k]); };
        holders[{n(0), {n(1), n(2), n(3), n(4)}}].push_back(static_cast<int>(r));
      }
    }
    for (const auto& [slice, ranks] : holders)
      writers_[slice] = ranks[static_cast<std::size_t>(slice.tensor) % ranks.size()];
    check_complete();
  }

  void write(const std::string& folder) {
    std::vector<std::optional<PlacedFile>> open(files_.size());
    std::vector<float> piece;
    for (const OwnSlice& s : own_) {
      if (writers_.at(s.slice) != comm_.rank()) continue;
      const std::size_t file = place_of(s.slice.tensor).first;
      if (!open[file]) open[file].emplace((fs::path(folder) / files_[file].name).string());
      const ElementRuns& elements = s.slice.elements;
      // Many runs leave the device in one copy; in the file each has its own place.
      for (int64_t done = 0; done < elements.count(); done += kElements) {
        const int64_t end = std::min(done + kElements, elements.count());
        piece.resize(static_cast<std::size_t>(end - done));
        s.values->download(s.at + done, piece);
        elements.for_each_run(done, end, [&](int64_t element, int64_t offset, int64_t n) {
          const auto run =
              std::span(piece).subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(n));
          write_run(*open[file], s.slice.tensor, element, std::as_bytes(run));
        });
      }
    }
    for (std::optional<PlacedFile>& f : open) {
      if (f) f->sync();
    }
  }

  // Of all ranks' parts, tensor by tensor.
  void share_checksums() {
    const std::vector<double> mine(checksums_.begin(), checksums_.end());
    std::fill(checksums_.begin(), checksums_.end(), 0);
    for (const std::vector<double>& rank : all_gather_numbers(ctx_, comm_, mine, "checkpoint checksums")) {
      for (std::size_t i = 0; i < checksums_.size(); ++i) checksums_[i] ^= static_cast<uint32_t>(rank.at(i));
    }
  }

  std::vector<ManifestFile> describe(const std::string& folder) const {
    std::vector<ManifestFile> described;
    std::size_t tensor = 0;
    for (const TensorFile& f : files_) {
      std::vector<ManifestTensor> tensors;
      tensors.reserve(f.tensors.size());
      for (const SafetensorsDeclaration& t : f.tensors)
        tensors.push_back({t.name, t.bytes(), checksums_[tensor++]});
      described.push_back(describe_file(folder, f.name, std::move(tensors)));
    }
    return described;
  }

  const HfConfig& config() const { return config_; }

 private:
  void list(NamedValues& values, const std::string& weight, int64_t tensor) {
    for (const ValuePiece& p : values.pieces(weight)) own_.push_back({{tensor, p.elements}, &values, p.at});
  }

  // Adds the run to the tensor's checksum as well. That of pieces in a row is the exclusive or of each one's,
  // moved on by the bytes behind it (crc32c_joined with nothing after it): so it does not matter who has
  // which piece, or how many of them there are, and a rank sends one number a tensor.
  void write_run(PlacedFile& open, int64_t tensor, int64_t element, std::span<const std::byte> bytes) {
    const auto [file, index] = place_of(tensor);
    const uint64_t at = static_cast<uint64_t>(element) * sizeof(float);
    open.write(files_[file].begins[index] + at, bytes);
    const uint64_t behind = files_[file].tensors[index].bytes() - at - bytes.size();
    checksums_[static_cast<std::size_t>(tensor)] ^= crc32c_joined(crc32c(bytes), 0, behind);
  }

  std::pair<std::size_t, std::size_t> place_of(int64_t tensor) const {
    std::size_t file = 0;
    auto index = static_cast<std::size_t>(tensor);
    while (index >= files_[file].tensors.size()) index -= files_[file++].tensors.size();
    return {file, index};
  }

  // Every element of every tensor has one writer: runs are visited in the order they have in the file.
  void check_complete() const {
    struct NextRun {
      int64_t begin, left;
      const ElementRuns* elements;
      int rank;
      bool operator<(const NextRun& o) const { return begin > o.begin; }  // the queue's top is the first
    };
    auto next = writers_.begin();
    int64_t tensor = 0;
    for (const TensorFile& f : files_) {
      for (const SafetensorsDeclaration& t : f.tensors) {
        std::priority_queue<NextRun> runs;
        for (; next != writers_.end() && next->first.tensor == tensor; ++next)
          runs.push(
              {next->first.elements.begin, next->first.elements.runs, &next->first.elements, next->second});
        int64_t at = 0;
        while (!runs.empty() && runs.top().begin == at) {
          NextRun r = runs.top();
          runs.pop();
          at += r.elements->run;
          r.begin += r.elements->stride;
          if (--r.left > 0) runs.push(r);
        }
        const auto all = static_cast<int64_t>(t.bytes() / sizeof(float));
        if (at != all || !runs.empty())
          throw Error(cat("the ranks do not make up ", t.name, ": after element ", at, " of ", all,
                          runs.empty()
                              ? std::string(" there is none")
                              : cat(" comes element ", runs.top().begin, " of rank ", runs.top().rank)));
        ++tensor;
      }
    }
  }

  RankContext& ctx_;
  Communicator& comm_;
  HfConfig config_;
  std::vector<TensorFile> files_;
  ParamValues weights_;
  std::deque<OptimizerValues> state_;  // own_ points into it
  std::vector<OwnSlice> own_;
  std::map<Slice, int> writers_;     // ranks
  std::vector<uint32_t> checksums_;  // of tensors: what this rank adds to them, then those of all
};

}  // namespace

std::string save_checkpoint_of_ranks(const RunFolder* run, const CheckpointParts& parts,
                                     const TrainState& state, int keep, const Warn& warn) {
  RankContext& ctx = parts.ctx;
  Communicator& comm = *parts.comm;
  const bool first = comm.rank() == 0;
  if (first != (run != nullptr))
    throw Error("of the ranks that save, the first and no other has the run's folder");
  const std::string name =
      first ? (fs::path(run->checkpoints()) / checkpoint_name(state.step())).string() : "";
  const std::string folder = all_gather_text(ctx, comm, name, "checkpoint folder").front();
  const std::string temporary =
      all_gather_text(ctx, comm, first ? cat(folder, ".tmp.", run->generation()) : "", "checkpoint folder")
          .front();
  const OnExit leave([&] {  // after the rename there is nothing left to remove
    if (first) remove_tree(temporary);
  });
  std::optional<RankSave> save;
  all_or_throw(ctx, comm, "checkpoint begin", [&] {
    save.emplace(parts);
    if (first) save->create(temporary);
  });
  save->agree();
  all_or_throw(ctx, comm, "checkpoint write", [&] { save->write(temporary); });
  save->share_checksums();
  all_or_throw(ctx, comm, "checkpoint end", [&] {
    if (!first) return;
    write_hf_texts(temporary, save->config(), hf_files(save->config()));
    write_texts(temporary, *run, parts, state, save->describe(temporary));
    publish(*run, temporary, folder);
  });
  if (first) retire_checkpoints(*run, state.step(), keep, warn);
  return folder;
}

}  // namespace kiln
