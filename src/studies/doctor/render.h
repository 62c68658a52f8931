// What `kiln doctor` prints: text for people, one JSON document for programs.
#pragma once

#include <string>

#include "base/json.h"
#include "studies/doctor/facts.h"

namespace kiln {

std::string facts_text(const DoctorFacts& facts);
Json facts_json(const DoctorFacts& facts);

}  // namespace kiln
