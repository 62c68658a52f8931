// --export svg of the benches: pictures of a command's rows, beside its other results.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "report/charts/svg_parts.h"

namespace kiln::cli {

// Of --export: svg or none.
bool read_chart_export(const std::string& text);

// As OUT/GROUP/NAME.svg; where they are.
std::vector<std::string> write_pictures(const std::string& out, const std::string& group,
                                        std::span<const NamedPicture> pictures);

// The charts of steps, each named on stderr.
void write_step_charts(const std::string& out, std::span<const nlohmann::json> rows);

}  // namespace kiln::cli
