# Puts kiln's documents and sources into the program as one text (src/data/builtin_text.h). It is joined again when one
# of the files changes, which costs a tenth of a second and one small object; what is linked then is linked anyway.

file(GLOB documents CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}
  ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/docs/*.md)
file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}
  ${CMAKE_SOURCE_DIR}/src/*.h ${CMAKE_SOURCE_DIR}/src/*.cpp ${CMAKE_SOURCE_DIR}/src/*.cu ${CMAKE_SOURCE_DIR}/src/*.cuh
  ${CMAKE_SOURCE_DIR}/apps/*.h ${CMAKE_SOURCE_DIR}/apps/*.cpp)
list(FILTER sources EXCLUDE REGEX "/unicode_tables\\.cpp$")  # generated; nothing but numbers
set(texts ${documents} ${sources})
list(SORT texts)

set(KILN_BUILTIN_TEXT ${CMAKE_BINARY_DIR}/generated/builtin_text.txt)
set(list_file ${CMAKE_BINARY_DIR}/generated/builtin_text.list)
list(JOIN texts "\n" lines)
file(CONFIGURE OUTPUT ${list_file} CONTENT "${lines}\n" @ONLY)  # touched only when a file comes or goes
list(TRANSFORM texts PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE paths)

add_custom_command(
  OUTPUT ${KILN_BUILTIN_TEXT}
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DLIST=${list_file} -DOUTPUT=${KILN_BUILTIN_TEXT}
          -P ${CMAKE_SOURCE_DIR}/cmake/write_builtin_text.cmake
  DEPENDS ${paths} ${list_file} ${CMAKE_SOURCE_DIR}/cmake/write_builtin_text.cmake
  COMMENT "Joining the built-in text" VERBATIM)

# The assembler's .incbin is nothing a compiler's dependency file knows of.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/data/builtin_text.cpp
  TARGET_DIRECTORY kiln_core PROPERTIES
  OBJECT_DEPENDS ${KILN_BUILTIN_TEXT}
  COMPILE_DEFINITIONS "KILN_BUILTIN_TEXT=\"${KILN_BUILTIN_TEXT}\"")
target_sources(kiln_core PRIVATE ${KILN_BUILTIN_TEXT})
