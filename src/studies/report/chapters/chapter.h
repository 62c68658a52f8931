// A report's chapters are tables of questions: each with the rows it needs, the function that answers it
// from them, and the command that would measure them. To add a question, add a line and its function.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "report/charts/svg_parts.h"
#include "report/tables/study_page.h"

namespace kiln {

using Rows = std::span<const Json>;

struct AnswerChart {
  NamedChart chart;
  std::string alt;
};

// What rows say. Without sentences and tables they say nothing.
struct Answer {
  std::vector<std::string> sentences = {};
  std::vector<PageTable> tables = {};
  std::vector<AnswerChart> charts = {};
  std::vector<std::string> files = {};  // pictures that lie where the rows lie
  bool empty() const { return sentences.empty() && tables.empty(); }
};

struct Question {
  std::string_view number;   // "1.1.3 (b)", as an outline of the course has it; empty: it has none
  std::string_view problem;  // "benchmarking_script": of the course's checklist
  std::string_view heading;
  std::array<std::string_view, 3> commands;  // whose rows it needs, any of them; none: it is worked out
  Answer (*answer)(Rows rows);
  std::string_view fill;  // the command that measures what it needs

  bool worked_out() const { return commands.front().empty(); }
};

struct Chapter {
  std::string_view name, title;
  std::span<const Question> questions;
  std::string_view writeup = {};  // the one it belongs to: "profiling"
};

Chapter benchmarking_chapter();
Chapter profiling_chapter();
Chapter precision_chapter();
Chapter memory_chapter();
Chapter attention_chapter();
Chapter compile_chapter();
Chapter collectives_chapter();
Chapter data_parallel_chapter();
Chapter sharding_chapter();
Chapter fsdp_chapter();
Chapter parallelism_chapter();
Chapter optimizations_chapter();
Chapter theory_chapter();
Chapter training_chapter();

std::vector<Chapter> all_chapters();

}  // namespace kiln
