// A checkpoint written by all ranks of a run. The files are planned to the byte by everybody; the first rank
// makes them; each rank writes its pieces into their places and sends what they add to the tensors'
// checksums; the first combines those, writes the manifest and publishes the folder.
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <queue>

#include "base/crc32c.h"
#include "base/folder.h"
#include "base/placed_file.h"
#include "dist/launch/rank_agreement.h"
#include "train/checkpoint/checkpoint_names.h"
#include "train/checkpoint/pending_save.h"

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

class RankSave final : public PendingSave {
 public:
  RankSave(const RunFolder* run, const CheckpointParts& parts, SaveSources sources, const TrainState& state,
           int keep)
      : ctx_(parts.ctx),
        comm_(*parts.comm),
        texts_(save_texts(run, parts, state, keep)),
        files_(tensor_files(texts_.config, parts.optimizer)),
        sources_(std::move(sources)) {
    int64_t tensor = 0;
    for (std::size_t f = 0; f + 1 < files_.size(); ++f) {  // the last is the optimizer's
      for (const SafetensorsDeclaration& t : files_[f].tensors) list(*sources_.weights, t.name, tensor++);
    }
    const std::vector<WeightSpec> specs = weight_specs(texts_.config.model);
    for (const auto& [name, values] : sources_.state) {
      for (const WeightSpec& w : specs) list(*values, w.name, tensor++);
    }
    checksums_.resize(static_cast<std::size_t>(tensor));
  }
  // After the rename there is nothing left to remove.
  ~RankSave() override {
    if (first() && !temporary_.empty()) remove_tree(temporary_);
  }

  // Collective, as agree() and share() are.
  void begin() {
    folder_ = all_gather_text(ctx_, comm_, first() ? texts_.folder() : "", "checkpoint folder").front();
    temporary_ = all_gather_text(ctx_, comm_, first() ? texts_.temporary() : "", "checkpoint folder").front();
    all_or_throw(ctx_, comm_, "checkpoint begin", [&] {
      if (first()) create();
    });
    agree();
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

  void write() override {
    std::vector<std::optional<PlacedFile>> open(files_.size());
    const auto open_file = [&](std::size_t file) {
      if (!open[file]) open[file].emplace((fs::path(temporary_) / files_[file].name).string());
    };
    for (std::size_t f = 0; f < files_.size() && first(); ++f) open_file(f);  // to sync what create() wrote
    std::vector<float> piece;
    for (const OwnSlice& s : own_) {
      if (writers_.at(s.slice) != comm_.rank()) continue;
      const std::size_t file = place_of(s.slice.tensor).first;
      open_file(file);
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

  // Checksums of all ranks' parts, tensor by tensor.
  void share() override {
    const std::vector<double> mine(checksums_.begin(), checksums_.end());
    std::fill(checksums_.begin(), checksums_.end(), 0);
    for (const std::vector<double>& rank : all_gather_numbers(ctx_, comm_, mine, "checkpoint checksums")) {
      for (std::size_t i = 0; i < checksums_.size(); ++i) checksums_[i] ^= static_cast<uint32_t>(rank.at(i));
    }
  }

  void publish(const Warn& warn) override {
    if (!first()) return;
    write_hf_texts(temporary_, texts_.config, hf_files(texts_.config));
    write_texts(texts_, describe());
    kiln::publish(texts_);
    retire_checkpoints(*texts_.run, texts_.state.step(), texts_.keep, warn);
  }

  const std::string& folder() const override { return folder_; }

 private:
  bool first() const { return texts_.run != nullptr; }

  // Not synced yet: write() does it.
  void create() const {
    std::error_code error;
    fs::create_directories(temporary_, error);
    if (error) throw Error(cat("cannot make the folder ", temporary_, ": ", error.message()));
    for (const TensorFile& f : files_)
      PlacedFile::create((fs::path(temporary_) / f.name).string(), f.front, f.bytes);
  }

  std::vector<ManifestFile> describe() const {
    std::vector<ManifestFile> described;
    std::size_t tensor = 0;
    for (const TensorFile& f : files_) {
      std::vector<ManifestTensor> tensors;
      tensors.reserve(f.tensors.size());
      for (const SafetensorsDeclaration& t : f.tensors)
        tensors.push_back({t.name, t.bytes(), checksums_[tensor++]});
      described.push_back(describe_file(temporary_, f.name, std::move(tensors)));
    }
    return described;
  }

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
  SaveTexts texts_;
  std::vector<TensorFile> files_;
  SaveSources sources_;  // own_ points into it
  std::string folder_, temporary_;
  std::vector<OwnSlice> own_;
  std::map<Slice, int> writers_;     // ranks
  std::vector<uint32_t> checksums_;  // of tensors: what this rank adds to them, then those of all
};

}  // namespace

std::unique_ptr<PendingSave> begin_save_of_ranks(const RunFolder* run, const CheckpointParts& parts,
                                                 SaveSources sources, const TrainState& state, int keep) {
  if ((parts.comm->rank() == 0) != (run != nullptr))
    throw Error("of the ranks that save, the first and no other has the run's folder");
  std::unique_ptr<RankSave> save;
  all_or_throw(parts.ctx, *parts.comm, "checkpoint plan",
               [&] { save = std::make_unique<RankSave>(run, parts, std::move(sources), state, keep); });
  save->begin();
  return save;
}

std::string save_checkpoint_of_ranks(const RunFolder* run, const CheckpointParts& parts,
                                     const TrainState& state, int keep, const Warn& warn) {
  RankContext& ctx = parts.ctx;
  Communicator& comm = *parts.comm;
  const auto save = begin_save_of_ranks(run, parts, device_sources(parts), state, keep);
  all_or_throw(ctx, comm, "checkpoint write", [&] { save->write(); });
  save->share();
  all_or_throw(ctx, comm, "checkpoint end", [&] { save->publish(warn); });
  return save->folder();
}

}  // namespace kiln
