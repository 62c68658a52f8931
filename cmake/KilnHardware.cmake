# Puts the hardware files (hardware/*.json) into the program: src/perf/model/hardware.h.

file(GLOB hardware_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/hardware/*.json)
set(hardware_entries "")
foreach(path IN LISTS hardware_files)
  get_filename_component(name ${path} NAME_WE)
  file(READ ${path} text)
  string(APPEND hardware_entries "      {\"${name}\", R\"json(${text})json\"},\n")
endforeach()
set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${hardware_files})

file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/hardware_files.cpp @ONLY CONTENT [[
#include "perf/model/hardware.h"

namespace kiln {

const std::vector<HardwareFile>& hardware_files() {
  static const std::vector<HardwareFile> kFiles = {
@hardware_entries@  };
  return kFiles;
}

}  // namespace kiln
]])
target_sources(kiln_core PRIVATE ${CMAKE_BINARY_DIR}/generated/hardware_files.cpp)
