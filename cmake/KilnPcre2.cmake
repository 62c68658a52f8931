# Finds PCRE2, or switches KILN_PCRE2 off and says so: src/data/no_pcre2.cpp then stands in.
if(KILN_PCRE2)
  find_library(KILN_PCRE2_LIBRARY pcre2-8)
  find_path(KILN_PCRE2_HEADERS pcre2.h)
  if(NOT KILN_PCRE2_LIBRARY OR NOT KILN_PCRE2_HEADERS)
    message(STATUS "kiln: PCRE2 was not found (apt install libpcre2-dev); tokenizers with other patterns than GPT-2's "
                   "are left out")
    set(KILN_PCRE2 OFF)
  endif()
endif()
