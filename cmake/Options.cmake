# One interface target carries include path, warnings and sanitizers to every target of ours.
add_library(corefan_options INTERFACE)
target_include_directories(corefan_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_definitions(corefan_options INTERFACE _GNU_SOURCE COREFAN_VERSION="${PROJECT_VERSION}")
target_compile_options(corefan_options INTERFACE
  -fno-common -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2
  -Wundef -Wcast-qual
  $<$<C_COMPILER_ID:GNU>:-Wduplicated-cond> $<$<C_COMPILER_ID:GNU>:-Wlogical-op>
  $<$<BOOL:${COREFAN_WERROR}>:-Werror>)
if(COREFAN_SANITIZE)
  target_compile_options(corefan_options INTERFACE
    -fsanitize=${COREFAN_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(corefan_options INTERFACE -fsanitize=${COREFAN_SANITIZE})
endif()
