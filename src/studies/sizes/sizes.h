// What `kiln sizes` lists: models, by name or custom, and what each needs of a machine.
#pragma once

#include <string>
#include <vector>

#include "model/model_options.h"
#include "report/tables/study_page.h"

namespace kiln {

// The models requested; all that have a name where none is. Throws Error(usage) for an unknown name.
StudyPage sizes_page(const ModelOptions& models, bool wide);

}  // namespace kiln
