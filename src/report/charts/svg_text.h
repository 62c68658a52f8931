// Text inside a chart.
#pragma once

#include "report/text/escape.h"

namespace kiln {

// What SVG would take for a tag or the end of an attribute stands as an entity.
inline std::string svg_escaped(std::string_view text) { return xml_escaped(text); }

}  // namespace kiln
