// Output of `kiln profile`; docs/profile.md lists the keys of its JSON. Every figure and every
// conclusion comes from the traces.
#pragma once

#include <string>
#include <vector>

#include "report/tables/study_page.h"
#include "studies/profile/profile.h"

namespace kiln {

StudyPage profile_page(const ProfileReport& report, bool wide = false);
std::vector<std::string> profile_result_lines(const ProfileReport& report);

// The row of a step, whole: head, timing, and the lists its tables are made of.
Json step_json(const ProfileReport& report, const StepProfile& step);
std::span<const ColumnForm> step_profile_columns();
Json ranges_json(const StepProfile& step, const std::vector<RangeRow>& rows);
std::span<const ColumnForm> range_columns(bool phases_only);  // else every range, with its rates
std::span<const ColumnForm> trace_kernel_columns();
std::span<const ColumnForm> matmul_share_columns();
std::span<const ColumnForm> attention_part_columns();
std::span<const ColumnForm> origin_columns();

// The questions and their answers, in the order in which they are read. `row` is of step_json().
std::vector<PageTable> profile_sections(const ProfileReport& report, const StepProfile& step,
                                        const Json& row);

// Why the traced step and the timer differ; what the traced step is made of.
std::string explain_difference(const StepProfile& step);

}  // namespace kiln
