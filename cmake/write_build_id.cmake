# Writes HEADER with the build id of SOURCE: the commit, and where what the program is made of differs from it "-dirty."
# and eight digits that tell one such difference from another. Leaves the file alone when nothing changed.
cmake_minimum_required(VERSION 3.25)
# What ends up in the program: sources, how they are compiled, and the built-in text. Tests, tools and measured pages do
# not: a tree that differs in them alone makes the program of its commit.
set(program CMakeLists.txt CMakePresets.json cmake src apps include README.md ":(glob)docs/*.md")
# A tree copied or owned by another user is still ours to describe.
set(git git -c safe.directory=* -c core.quotepath=off)

execute_process(COMMAND ${git} describe --always
  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE id OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed OR id STREQUAL "")
  # A source archive has no repository: whoever unpacked it may say which commit it is of.
  set(id "unknown")
  if("$ENV{KILN_SOURCE_ID}" MATCHES "^[0-9A-Za-z.-]+$")
    set(id "$ENV{KILN_SOURCE_ID}")
  endif()
else()
  # The options fix what a user's configuration might change about a diff.
  execute_process(
    COMMAND ${git} diff HEAD --binary --full-index --no-color --no-ext-diff --no-textconv --no-renames
            --src-prefix=a/ --dst-prefix=b/ -- ${program}
    WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE changed ERROR_QUIET)
  execute_process(COMMAND ${git} ls-files --others --exclude-standard -- ${program}
    WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE added ERROR_QUIET)
  if(NOT added STREQUAL "")
    execute_process(
      COMMAND ${git} ls-files --others --exclude-standard -- ${program}
      COMMAND ${git} hash-object --stdin-paths
      WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE contents ERROR_QUIET)
    string(APPEND added "${contents}")
  endif()
  if(NOT "${changed}${added}" STREQUAL "")
    string(SHA256 digits "${changed}\n${added}")
    string(SUBSTRING ${digits} 0 8 digits)
    string(APPEND id "-dirty.${digits}")
  endif()
endif()
file(CONFIGURE OUTPUT ${HEADER} @ONLY CONTENT "#define KILN_BUILD_ID \"@id@\"\n")
