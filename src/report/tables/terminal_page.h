// A page for a terminal, whose lines must not wrap: tables show as many of their columns as fit, from the
// left, in the order in which the schema has them.
#pragma once

#include <cstddef>
#include <string>

#include "report/tables/study_page.h"

namespace kiln {

// As written(page, PageFormat::text), in `width` characters. It ends with how many columns are not shown.
std::string terminal_text(const StudyPage& page, std::size_t width);

}  // namespace kiln
