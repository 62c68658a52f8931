// TensorBoard's event files: scalars by tag and step, one file per process and run.
//
//   events.out.tfevents.<seconds>.<host>, in the run's folder; a resumed run starts another next to it
//
//   record   u64 length, u32 masked CRC-32C of those 8 bytes, the bytes, u32 masked CRC-32C of them
//   bytes    protobuf Event {1: double wall_time, 2: int64 step, 3: string file_version (the first record),
//            5: Summary {1: Value {1: string tag, 2: float simple_value}}}
//
// TensorBoard reads a file up to the first record that is not whole, so nothing may follow a torn one:
// records go out whole, and one that the disk took only a part of is cut off again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kiln {

class EventFile {
 public:
  // Creates the folder where it is not there, and a file that was not there before. Throws Error naming the
  // file.
  explicit EventFile(const std::string& folder);
  ~EventFile();  // flushes; what cannot be written then is lost silently
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const std::string& path() const { return path_; }

  // Buffered until flush(), or until there are some 64 KiB. Values that are not finite are written as they
  // are.
  void add(int64_t step, std::string_view tag, double value);
  // Hands everything to the system. Error when the disk does not take it; it is kept then (up to
  // 4 MiB), the file ends with the last whole record, and the next flush tries again.
  void flush();

 private:
  std::string path_;
  int file_ = -1;
  uint64_t whole_ = 0;   // bytes of the file that are whole records
  std::string pending_;  // records not yet written
};

// The pieces of the format.
std::string event_record(std::string_view payload);
std::string version_event(double wall_time);
std::string scalar_event(double wall_time, int64_t step, std::string_view tag, float value);

}  // namespace kiln
