# Which files are compiled. Optional parts are chosen by file, so that the code itself carries no #if:
#   a folder named after a part (cuda/)   is compiled only where the part is ON,
#   a file   no_<part>.cpp                only where it is OFF.
set(KILN_OPTIONAL_PARTS cuda cupti mpi nccl pcre2)

# Drops from the named list (paths relative to src/) what this configuration leaves out.
function(kiln_drop_left_out list_name)
  set(kept ${${list_name}})
  foreach(part IN LISTS KILN_OPTIONAL_PARTS)
    string(TOUPPER KILN_${part} switch)
    if(${switch})
      list(FILTER kept EXCLUDE REGEX "(^|/)no_${part}\\.cpp$")
    else()
      list(FILTER kept EXCLUDE REGEX "(^|/)${part}/")
    endif()
  endforeach()
  if(NOT KILN_CUDA)
    list(FILTER kept EXCLUDE REGEX "\\.cu$")
  endif()
  set(${list_name} ${kept} PARENT_SCOPE)
endfunction()

# kiln_op(<name> <file>...): adds src/ops/<name>/<file>... to kiln_core; cuda_* files only where CUDA is ON. Ops are
# listed and not globbed, so that src/ops/CMakeLists.txt is the list of ops and their variants.
function(kiln_op name)
  foreach(file IN LISTS ARGN)
    if(KILN_CUDA OR NOT file MATCHES "(^cuda_|[.]cu$)")
      target_sources(kiln_core PRIVATE ${CMAKE_SOURCE_DIR}/src/ops/${name}/${file})
    endif()
  endforeach()
endfunction()
