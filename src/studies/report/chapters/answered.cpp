#include "studies/report/chapters/answered.h"

#include <algorithm>

#include "base/error.h"
#include "studies/report/chapters/row_facts.h"
#include "studies/report/rows_page.h"
#include "studies/report/stored_rows.h"

namespace kiln {
namespace {

bool is_for(const Json& row, const Question& q) {
  const std::string command = text_at(row, "command");
  return std::any_of(q.commands.begin(), q.commands.end(), [&](std::string_view c) {
    // "bench op linear" is of "bench op"; "memory scaling" is a study of its own.
    return !c.empty() &&
           (command == c || (c.starts_with("bench ") && command.starts_with(std::string(c) + " ")));
  });
}

// Of figures that may be compared: one machine, one build.
std::string origin_of(const Json& row) {
  const Json* host = row.find("host");
  return (host == nullptr ? std::string() : text_at(*host, "device_name")) + "\n" + text_at(row, "build_id");
}

// The rows of the origin that counts. Rows without a machine, as predicted ones, go with any of their build.
std::vector<Json> of_one_origin(const std::vector<Json>& rows, const std::string& build) {
  const Json* newest = nullptr;
  const auto better = [&](const Json& row) {
    if (newest == nullptr) return true;
    // One of a later kiln, or a broken one, may have no figure that could be read.
    const bool timed = number_at(row, "p50_ms").has_value(), was = number_at(*newest, "p50_ms").has_value();
    if (timed != was) return timed;
    const bool own = word_is(row, "build_id", build), had = word_is(*newest, "build_id", build);
    return own != had ? own : text_at(row, "time") >= text_at(*newest, "time");
  };
  for (const Json& row : rows)
    if (better(row)) newest = &row;
  if (newest == nullptr) return {};
  const std::string origin = origin_of(*newest);
  return rows_where(rows, [&](const Json& r) { return origin_of(r) == origin; });
}

}  // namespace

std::string_view name_of(AnswerState state) {
  constexpr std::array<std::string_view, 5> kNames = {"measured", "worked out", "stale", "unverified",
                                                      "missing"};
  return kNames[static_cast<std::size_t>(state)];
}

AnsweredQuestion answer_question(const Question& q, Rows all, const std::string& build) {
  AnsweredQuestion answered{.question = q};
  if (q.worked_out()) {
    answered.answer = q.answer({});
    answered.state = answered.answer.empty() ? AnswerState::missing : AnswerState::worked_out;
    return answered;
  }
  const std::vector<Json> own = rows_where(all, [&](const Json& r) { return is_for(r, q); });
  const std::vector<Json> usable = rows_where(own, belongs_in_tables);
  // What ablations and sums repeat tells their rows apart by other keys.
  std::vector<Json> rows = of_one_origin(usable, build);
  if (!rows.empty() && text_at(rows.front(), "command") != "ablate") rows = latest_rows(rows);
  if (rows.empty()) {
    if (!own.empty()) answered.state = AnswerState::unverified;
    return answered;
  }
  try {
    answered.answer = q.answer(rows);
  } catch (const Error&) {
    return answered;  // rows of another shape than kiln writes say nothing
  }
  if (answered.answer.empty()) return answered;
  answered.rows = rows.size();
  answered.place = place_of(rows.back());
  for (const Json& row : rows) answered.time = std::max(answered.time, text_at(row, "time"));
  answered.state = word_is(rows.back(), "build_id", build) ? AnswerState::measured : AnswerState::stale;
  return answered;
}

std::vector<AnsweredChapter> answer_chapters(Rows rows, const std::string& build) {
  std::vector<AnsweredChapter> chapters;
  for (const Chapter& chapter : all_chapters()) {
    AnsweredChapter answered{chapter, {}};
    for (const Question& q : chapter.questions) answered.questions.push_back(answer_question(q, rows, build));
    chapters.push_back(std::move(answered));
  }
  return chapters;
}

std::vector<std::string> answers_of(Rows rows) {
  std::vector<std::string> sentences;
  for (const Chapter& chapter : all_chapters())
    for (const Question& q : chapter.questions) {
      if (q.worked_out()) continue;
      const AnsweredQuestion answered = answer_question(q, rows, {});
      for (const std::string& s : answered.answer.sentences)
        if (std::find(sentences.begin(), sentences.end(), s) == sentences.end()) sentences.push_back(s);
    }
  return sentences;
}

}  // namespace kiln
