// Runs a study: its parts one after another, each in a process of its own, into one folder. A part that
// fails, finds no memory or takes too long is named, and the next one runs. After each part the folder says
// all that is known so far, so that a study that was stopped, or killed, goes on where it was.
//
//   FOLDER/study.json    what became of each part: this is what a later run goes by
//   FOLDER/study.md      the same to read
//   FOLDER/PART.md       a part's command line and what it printed
//   FOLDER/PART/         what it stored: results.jsonl, pictures, traces
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "studies/course/parts.h"

namespace kiln::cli {

struct StudyRequest {
  std::string study;  // "2025"
  StudyScale scale = StudyScale::full;
  std::vector<StudyPart> parts;   // all of the study's, whether asked for or not
  std::vector<std::string> only;  // names of those to run; empty: all
  std::string device, seed = "0";
  std::string device_name;     // what it is: figures of another one do not count
  bool on_meta = false;        // no kernel runs there
  std::string out = "runs";    // rows of all parts go to its results.jsonl too
  double timeout = 600;        // seconds, of a part
  bool fresh = false;          // run again what is done
  std::string folder() const;  // OUT/study-2025, OUT/study-2025-tiny
  std::string place() const;   // device and build
};

// What became of one run of a command line.
struct PartRun {
  int status = 0, signal = 0;
  bool timed_out = false, stopped = false;
  double seconds = 0;
  std::string reason;  // its last word
  std::string page;    // what it printed
};

struct PartReport {
  // done: status 0. The others have a reason; left: not asked for, or the study was stopped before it was
  // over.
  enum class Status { done, timed_out, unavailable, failed, left };
  StudyPart part;
  std::vector<std::string> words;  // its whole command line, without the program
  std::string id;                  // of all that decides its figures
  bool asked = true;               // by --only
  Status status = Status::left;
  bool reused = false;  // an earlier run did it
  double seconds = 0;
  std::string reason, time;
  std::size_t rows = 0, no_memory = 0;  // stored by it; and how many of them found no memory
  std::vector<std::string> pictures;    // from the study's folder
};

std::string_view name_of(PartReport::Status s);
std::string_view name_of(StudyScale s);

struct StudyReport {
  StudyRequest request;
  std::vector<PartReport> parts;
  std::vector<std::string> remarks;

  bool stopped() const;    // before the last of those asked for
  double seconds() const;  // of all parts, earlier runs' too
  std::size_t count(PartReport::Status status) const;
};

struct StudyTools {
  // Runs `words`; what it stores goes to the folder in them, what it prints becomes the page.
  std::function<PartRun(const std::vector<std::string>& words, const std::string& folder)> run;
  std::function<void(const std::string&)> progress;
  std::function<bool()> stop;
};

// Every part with its command line, nothing run yet.
std::vector<PartReport> plan_study(const StudyRequest& request);

// "kiln bench step --size small ...", as a shell takes it.
std::string shell_line(const std::vector<std::string>& words);

StudyReport run_study(const StudyRequest& request, const StudyTools& tools);

}  // namespace kiln::cli
