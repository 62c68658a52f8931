// Ops and variants by the names they had. Those still work; the command line says what they are called now.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln {

// What op `name` is called today. Any other name as it is.
std::string_view current_op(std::string_view name);

// What variant `name` of `op` is called today; empty where no row has the name's place any more and the
// table's order says what to take. Any other name as it is.
std::string_view current_variant(std::string_view op, std::string_view name);

// What to say of the former names in what was typed, a sentence for each: of "attention=few_rows,..." as
// --variant takes it, or of a list of ops, or of variants.
std::vector<std::string> former_names_in(std::string_view text);

}  // namespace kiln
