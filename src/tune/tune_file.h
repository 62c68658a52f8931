// Choices of GEMM algorithms, and of tiles of attention, on disk: what `kiln tune` measured,
// and what a training run took at its start. Ordinary runs never choose by timing; they read such a file, or
// take the library's own suggestions and the defaults of attention's tables. A choice holds for one model of
// GPU and one version of the library, so both are in it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tune/attention_choice.h"
#include "tune/matmul_choice.h"

namespace kiln {

// Where choices hold.
struct TunePlace {
  std::string gpu;           // its name
  std::size_t cublaslt = 0;  // its version: 130100 is 13.1.0
  friend bool operator==(const TunePlace&, const TunePlace&) = default;
};

struct TuneFile {
  TunePlace place;
  std::string build;                            // of the kiln that measured last
  std::vector<MatmulChoice> choices;            // by problem, each once; its number of calls is not kept
  std::vector<AttentionChoice> attention = {};  // by shape, each once; files may lack the list
};

std::string tune_text(const TuneFile& file);

// Error naming `source` for anything tune_text() would not have written.
TuneFile parse_tune_file(std::string_view text, std::string_view source);
TuneFile read_tune_file(const std::string& path,
                        const std::string& remedy = "remove it and run `kiln tune` again");
void write_tune_file(const std::string& path, const TuneFile& file);  // whole or not at all

// "tune-nvidia-h200.json"
std::string tune_file_name(std::string_view gpu);

// What keeps a file's choices from being used in a place: "... was measured on A; this is B". Empty: nothing.
std::string why_not_here(const TuneFile& file, const TunePlace& here, std::string_view source);

// `now`, and of `earlier` the choices for other problems and shapes. Both of the same place.
TuneFile merged(const TuneFile& earlier, const TuneFile& now);

}  // namespace kiln
