#include "train/run/bad_step_dump.h"

#include <cstdio>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/safetensors_writer.h"
#include "train/checkpoint/checkpoint_names.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

std::vector<SafetensorsDeclaration> declarations(const BadStep& bad) {
  std::vector<SafetensorsDeclaration> tensors;
  for (std::size_t i = 0; i < bad.batches.size(); ++i) {
    for (const char* what : {"tokens", "targets"})
      tensors.push_back({cat(what, ".", i), SafetensorsType::i32, {bad.batches[i].tokens.size()}});
  }
  if (bad.tensor.empty()) return tensors;
  tensors.push_back({"first_not_finite", SafetensorsType::f32, {}});
  for (int i = 0; i < bad.shape.rank(); ++i)
    tensors.back().shape.push_back(static_cast<uint64_t>(bad.shape[i]));
  return tensors;
}

void write_tensors(const std::string& path, const BadStep& bad) {
  SafetensorsWriter writer(path, declarations(bad));
  for (const HostBatch& b : bad.batches) {
    writer.append(std::as_bytes(b.tokens));
    writer.append(std::as_bytes(b.targets));
  }
  if (!bad.tensor.empty()) writer.append(std::as_bytes(std::span(bad.values)));
  (void)writer.commit();
}

}  // namespace

std::string dump_bad_step(const std::string& run, int rank, const BadStep& bad) {
  const fs::path folder = fs::path(run) / "non-finite" / checkpoint_name(bad.step);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw Error(cat("cannot make the folder ", folder.string(), ": ", error.message()));
  const std::string name = (folder / cat("rank-", rank)).string();
  write_tensors(name + ".safetensors", bad);
  // Numbers that are not finite are text here: JSON has none.
  const Json page = {{"step", bad.step},
                     {"rank", rank},
                     {"what", bad.what},
                     {"first_not_finite", bad.tensor.empty() ? Json() : Json(bad.tensor)},
                     {"loss", cat(bad.loss)},
                     {"square_sum", cat(bad.square_sum)},
                     {"micro_batches", bad.batches.size()}};
  write_file_atomically(name + ".json", page.dump(2) + "\n");
  return folder.string();
}

}  // namespace kiln
