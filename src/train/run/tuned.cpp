#include "train/run/tuned.h"

#include <filesystem>

#include "base/atomic_file.h"
#include "base/build_info.h"
#include "base/error.h"
#include "device/gpu_info.h"
#include "ops/attention/tile_choice.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAgain = "run `kiln tune` here, or use --tune off";

// Tiles that only another kiln had go; the rest of a file holds. Returns how many went.
std::size_t drop_tiles_of_others(TuneFile& file) {
  return std::erase_if(file.attention,
                       [](const AttentionChoice& c) { return !why_no_such_tiles({&c, 1}).empty(); });
}

std::string without_tiles(const std::string& path, std::size_t dropped) {
  return cat(path, ": tiles for ", dropped, " shapes of attention are not in this kiln");
}

// "12 matmuls and tiles for 3 shapes of attention"
std::string what_is_chosen(const TuneFile& file) {
  return cat(file.choices.size(), " matmuls",
             file.attention.empty() ? std::string()
                                    : cat(" and tiles for ", file.attention.size(), " shapes of attention"));
}

std::optional<TuneFile> tuning_of_earlier_part(const RunFolder& run, const std::string& tune,
                                               const std::optional<TunePlace>& here, const Say& say) {
  const std::string path = run.file("gemm.json");
  const bool kept = fs::exists(path);
  if (tune != "auto" && (here || kept))
    say(cat("--tune ", tune, " is ignored: the run resumes ",
            kept ? cat("with the choices in ", path) : std::string("without choices, as it started")));
  if (!kept) return std::nullopt;
  TuneFile file = read_tune_file(
      path, "without it the run resumes with the library's default algorithms, and other last bits");
  const std::string why = here ? why_not_here(file, *here, path) : cat(path, " holds for ", file.place.gpu);
  if (!why.empty()) {
    say(cat(why, ": the run resumes without its choices, and its last bits may differ"));
    return std::nullopt;
  }
  if (const std::size_t dropped = drop_tiles_of_others(file))
    say(cat(without_tiles(path, dropped),
            ": the run resumes with the defaults, and its last bits may differ"));
  return file;
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
    say(cat(why, ": ignored; ", kAgain));
    return std::nullopt;
  }
  if (const std::string why = why_no_such_tiles(file.attention); !why.empty()) {
    if (!by_itself) throw Error(cat(path, ": ", why), kAgain);
    say(cat(without_tiles(path, drop_tiles_of_others(file)),
            " and ignored; run `kiln tune attention` again"));
  }
  say(cat("as chosen in ", path, ": ", what_is_chosen(file)));
  return file;
}

void use_tuning(RankContext& ctx, const TuneFile& tuning) {
  ctx.backend().use_matmuls(tuning.choices);
  ctx.attention_choices().use(tuning.attention);
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

std::string tune_path(const std::string& out, const TunePlace& here) {
  return ((out.empty() ? fs::path(".") : fs::path(out)) / tune_file_name(here.gpu)).string();
}

void check_tune_path(const std::string& path) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error)
    throw Error(cat("cannot make the folder of ", path, ": ", error.message()),
                "name a folder that can be written with --out");
  const AtomicFile probe(path);
}

TuneFile earlier_choices(const std::string& path, const TunePlace& here, const Say& say) {
  TuneFile none{here, build_info().build_id, {}};
  if (!fs::exists(path)) return none;
  TuneFile file = read_tune_file(path);
  if (const std::string why = why_not_here(file, here, path); !why.empty()) {
    say(cat(why, ": its choices (", what_is_chosen(file), ") are replaced"));
    return none;
  }
  drop_tiles_of_others(file);
  return file;
}

}  // namespace kiln
