# Finds Open MPI (or another MPI), or switches KILN_MPI off and says so: src/dist/comm/no_mpi.cpp then stands in. C's
# interface alone is used. Sanitizer builds keep it; what its parts leak is not looked at (tests/dist_ranks/CMakeLists.txt).
if(KILN_MPI)
  find_package(MPI QUIET COMPONENTS C)
  if(NOT MPI_C_FOUND)
    message(STATUS "kiln: MPI was not found (apt install libopenmpi-dev openmpi-bin); ranks in processes are left out")
    set(KILN_MPI OFF)
  endif()
  if(KILN_MPI)
    list(GET MPI_C_INCLUDE_DIRS 0 KILN_MPI_HEADERS)
  endif()
endif()
