// A checkpoint written by all ranks of a run. The files are planned to the byte by everybody; the first rank
// makes them; each rank writes its pieces into their places and tells the checksums; the first joins those to
// the tensors', writes the manifest and publishes the folder.
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <tuple>

#include "base/crc32c.h"
#include "base/on_exit.h"
#include "base/placed_file.h"
#include "dist/rank_words.h"
#include "train/checkpoint_files.h"
#include "train/checkpoint_names.h"
#include "train/moment_values.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kElements = int64_t{1} << 20;  // at a time

// A run of elements of a tensor that a rank has. Tensors are counted through all files.
struct Slice {
  int64_t tensor, begin, count;
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
        files_(tensor_files(config_)),
        weights_(parts.ctx, parts.model.params()),
        first_(parts.ctx, parts.model.params(), parts.optimizer, Moment::first),
        second_(parts.ctx, parts.model.params(), parts.optimizer, Moment::second) {
    int64_t tensor = 0;
    for (const TensorFile& f : files_) {
      for (const SafetensorsDeclaration& t : f.tensors) list(t, tensor++);
    }
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
      for (const int64_t n : {s.slice.tensor, s.slice.begin, s.slice.count})
        mine.push_back(static_cast<double>(n));
    }
    std::map<Slice, std::vector<int>> holders;
    const auto all = numbers_of_ranks(ctx_, comm_, mine, "checkpoint slices");
    for (std::size_t r = 0; r < all.size(); ++r) {
      for (std::size_t i = 0; i + 3 <= all[r].size(); i += 3) {
        const auto n = [&](std::size_t k) { return static_cast<int64_t>(all[r][i + k]); };
        holders[{n(0), n(1), n(2)}].push_back(static_cast<int>(r));
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
      const auto [file, index] = place_of(s.slice.tensor);
      if (!open[file]) open[file].emplace((fs::path(folder) / files_[file].name).string());
      uint64_t at = files_[file].begins[index] + static_cast<uint64_t>(s.slice.begin) * sizeof(float);
      uint32_t checksum = 0;
      for (int64_t done = 0; done < s.slice.count; done += kElements) {
        piece.resize(static_cast<std::size_t>(std::min(kElements, s.slice.count - done)));
        s.values->download(s.at + done, piece);
        const auto bytes = std::as_bytes(std::span(piece));
        checksum = crc32c(bytes, checksum);
        open[file]->write(at, bytes);
        at += bytes.size();
      }
      written_.push_back({s.slice, checksum});
    }
    for (std::optional<PlacedFile>& f : open) {
      if (f) f->sync();
    }
  }

  // Of all ranks' slices, tensor by tensor.
  void share_checksums() {
    std::vector<double> mine;
    for (const auto& [slice, checksum] : written_) {
      for (const int64_t n : {slice.tensor, slice.begin, slice.count, static_cast<int64_t>(checksum)})
        mine.push_back(static_cast<double>(n));
    }
    for (const std::vector<double>& rank : numbers_of_ranks(ctx_, comm_, mine, "checkpoint checksums")) {
      for (std::size_t i = 0; i + 4 <= rank.size(); i += 4) {
        const auto n = [&](std::size_t k) { return static_cast<int64_t>(rank[i + k]); };
        checksums_[{n(0), n(1), n(2)}] = static_cast<uint32_t>(n(3));
      }
    }
  }

  std::vector<ManifestFile> describe(const std::string& folder) const {
    std::vector<ManifestFile> described;
    auto next = checksums_.begin();
    int64_t tensor = 0;
    for (const TensorFile& f : files_) {
      std::vector<ManifestTensor> tensors;
      for (const SafetensorsDeclaration& t : f.tensors) {
        uint32_t joined = 0;
        for (; next != checksums_.end() && next->first.tensor == tensor; ++next)
          joined =
              crc32c_joined(joined, next->second, static_cast<uint64_t>(next->first.count) * sizeof(float));
        tensors.push_back({t.name, t.bytes(), joined});
        ++tensor;
      }
      described.push_back(describe_file(folder, f.name, std::move(tensors)));
    }
    return described;
  }

  const HfConfig& config() const { return config_; }

 private:
  void list(const SafetensorsDeclaration& t, int64_t tensor) {
    const bool first = t.name.starts_with("m."), moment = first || t.name.starts_with("v.");
    NamedValues& values = !moment ? static_cast<NamedValues&>(weights_) : first ? first_ : second_;
    for (const ValuePiece& p : values.pieces(moment ? t.name.substr(2) : t.name))
      own_.push_back({{tensor, p.begin, p.count}, &values, p.at});
  }

  std::pair<std::size_t, std::size_t> place_of(int64_t tensor) const {
    std::size_t file = 0;
    auto index = static_cast<std::size_t>(tensor);
    while (index >= files_[file].tensors.size()) index -= files_[file++].tensors.size();
    return {file, index};
  }

  // Every element of every tensor has one writer.
  void check_complete() const {
    auto next = writers_.begin();
    int64_t tensor = 0;
    for (const TensorFile& f : files_) {
      for (const SafetensorsDeclaration& t : f.tensors) {
        int64_t at = 0;
        for (; next != writers_.end() && next->first.tensor == tensor; ++next) {
          if (next->first.begin != at) break;
          at += next->first.count;
        }
        const auto all = static_cast<int64_t>(t.bytes() / sizeof(float));
        if (at != all || (next != writers_.end() && next->first.tensor == tensor))
          throw Error(cat("the ranks do not make up ", t.name, ": after element ", at, " of ", all,
                          next != writers_.end() && next->first.tensor == tensor
                              ? cat(" comes element ", next->first.begin, " of rank ", next->second)
                              : std::string(" there is none")));
        ++tensor;
      }
    }
  }

  RankContext& ctx_;
  Communicator& comm_;
  HfConfig config_;
  std::vector<TensorFile> files_;
  ParamValues weights_;
  MomentValues first_, second_;
  std::vector<OwnSlice> own_;
  std::map<Slice, int> writers_;                     // ranks
  std::vector<std::pair<Slice, uint32_t>> written_;  // by this rank
  std::map<Slice, uint32_t> checksums_;
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
  const std::string folder = texts_of_ranks(ctx, comm, name, "checkpoint folder").front();
  const std::string temporary =
      texts_of_ranks(ctx, comm, first ? cat(folder, ".tmp.", run->generation()) : "", "checkpoint folder")
          .front();
  const OnExit leave([&] {  // after the rename there is nothing left to remove
    std::error_code ignored;
    if (first) fs::remove_all(temporary, ignored);
  });
  std::optional<RankSave> save;
  together(ctx, comm, "checkpoint begin", [&] {
    save.emplace(parts);
    if (first) save->create(temporary);
  });
  save->agree();
  together(ctx, comm, "checkpoint write", [&] { save->write(temporary); });
  save->share_checksums();
  together(ctx, comm, "checkpoint end", [&] {
    if (!first) return;
    write_hf_texts(temporary, save->config(), hf_files(save->config()));
    write_texts(temporary, *run, parts, state, save->describe(temporary));
    publish(*run, temporary, folder);
  });
  if (first) retire_checkpoints(*run, state.step(), keep, warn);
  return folder;
}

}  // namespace kiln
