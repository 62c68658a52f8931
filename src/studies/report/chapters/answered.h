// Questions with what stored rows say to them, and how far that can be relied on.
#pragma once

#include <string>
#include <vector>

#include "studies/report/chapters/chapter.h"

namespace kiln {

enum class AnswerState {
  measured,    // by this build, behind a gate
  worked_out,  // needs no measurement
  stale,       // measured by another build
  unverified,  // there are rows, none of which passed its gate
  missing,     // there are none, or not those it takes
};
std::string_view name_of(AnswerState state);

struct AnsweredQuestion {
  Question question;
  AnswerState state = AnswerState::missing;
  Answer answer = {};
  std::string place = {};  // machine and build of the rows
  std::string time = {};   // of the newest
  std::size_t rows = 0;    // it is made of
};

struct AnsweredChapter {
  Chapter chapter;
  std::vector<AnsweredQuestion> questions;
};

// Rows of several machines or builds never answer one question: the newest row's machine and build do, or
// this build's where it has rows. `build`: this one.
AnsweredQuestion answer_question(const Question& question, Rows rows, const std::string& build);
std::vector<AnsweredChapter> answer_chapters(Rows rows, const std::string& build);

// For a part of a study: what its rows say to the questions that its command answers, a sentence each.
std::vector<std::string> answers_of(Rows rows);

}  // namespace kiln
