# Writes HEADER with the commit SOURCE stands at; leaves the file alone when nothing changed.
cmake_minimum_required(VERSION 3.25)
execute_process(
  # A tree copied or owned by another user is still ours to describe.
  COMMAND git -c safe.directory=* describe --always --dirty
  WORKING_DIRECTORY ${SOURCE}
  OUTPUT_VARIABLE id OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR id STREQUAL "")
  set(id "unknown")
endif()
file(CONFIGURE OUTPUT ${HEADER} @ONLY CONTENT "#define KILN_BUILD_ID \"@id@\"\n")
