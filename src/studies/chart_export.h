// --export svg of the benches: charts of a command's rows, next to its other results.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "report/charts/svg_parts.h"

namespace kiln {

// Of --export: svg or none.
bool read_chart_export(const std::string& text);

// As OUT/GROUP/NAME.svg; where they are.
std::vector<std::string> write_charts(const std::string& out, const std::string& group,
                                      std::span<const NamedChart> charts);

// The charts of steps, each named on stderr.
void write_step_charts(const std::string& out, std::span<const Json> rows);

}  // namespace kiln
