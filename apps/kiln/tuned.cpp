#include "kiln/tuned.h"

#include <filesystem>

#include "base/error.h"
#include "device/gpu_info.h"

namespace kiln::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAgain = "run `kiln tune` here, or use --tune off";

std::optional<TuneFile> tuning_of_earlier_part(const RunFolder& run, const std::string& tune,
                                               const std::optional<TunePlace>& here, const Say& say) {
  const std::string path = run.file("gemm.json");
  const bool kept = fs::exists(path);
  if (tune != "auto" && (here || kept))
    say(cat("--tune ", tune, " is left aside: the run goes on ",
            kept ? cat("with the products of ", path) : std::string("without choices, as it began")));
  if (!kept) return std::nullopt;
  TuneFile file =
      read_tune_file(path, "without it the run goes on with the library's own products, and other last bits");
  const std::string why = here ? why_not_here(file, *here, path) : cat(path, " holds for ", file.place.gpu);
  if (why.empty()) return file;
  say(cat(why, ": the run goes on without its choices, and its last bits may differ"));
  return std::nullopt;
}

}  // namespace

std::optional<TunePlace> tune_place(const Device& device) {
  if (device.type != DeviceType::cuda) return std::nullopt;
  for (const GpuInfo& gpu : list_gpus()) {
    if (gpu.index == device.index) return TunePlace{gpu.name, cublaslt_version()};
  }
  return std::nullopt;
}

std::optional<TuneFile> find_tuning(const std::string& tune, const std::string& folder,
                                    const std::optional<TunePlace>& here, const Say& say) {
  if (tune == "off") return std::nullopt;
  const bool by_itself = tune == "auto";
  if (!here) {
    if (by_itself) return std::nullopt;
    throw Error(cat("--tune is '", tune, "', and on this device there is nothing to choose"),
                "use --device cuda, or --tune off", ErrorKind::unavailable);
  }
  const std::string path = by_itself ? (fs::path(folder) / tune_file_name(here->gpu)).string() : tune;
  if (!fs::exists(path)) {
    if (by_itself) return std::nullopt;
    throw Error(cat("--tune is '", tune, "', and there is no such file"), "give a file, auto or off",
                ErrorKind::usage);
  }
  TuneFile file = read_tune_file(path);
  if (const std::string why = why_not_here(file, *here, path); !why.empty()) {
    if (!by_itself) throw Error(why, kAgain);
    say(cat(why, ": it is left aside; ", kAgain));
    return std::nullopt;
  }
  say(cat("matrix products as chosen in ", path, " (", file.choices.size(), ")"));
  return file;
}

std::optional<TuneFile> tuning_of_run(const RunFolder& run, bool resumes, const std::string& tune,
                                      const std::optional<TunePlace>& here, const Say& say) {
  if (resumes) return tuning_of_earlier_part(run, tune, here, say);
  const fs::path beside = fs::path(run.path()).parent_path();
  std::optional<TuneFile> file = find_tuning(tune, beside.empty() ? "." : beside.string(), here, say);
  const std::string path = run.file("gemm.json");
  if (file) {
    write_tune_file(path, *file);
  } else {  // of a run that was killed before its first checkpoint
    std::error_code error;
    fs::remove(path, error);
    if (error) throw Error(cat("cannot remove ", path, ": ", error.message()));
  }
  return file;
}

}  // namespace kiln::cli
