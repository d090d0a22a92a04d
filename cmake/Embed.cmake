# corefan_embed(OUTPUT FILE SYMBOL HEADER): writes a C file that holds FILE as `const char SYMBOL[]`, ended by 0.
# HEADER declares the symbol.  Run as a script (-P) it does the work; included, it adds the rule.
if(CMAKE_SCRIPT_MODE_FILE)
  file(READ "${INPUT}" bytes HEX)
  string(REGEX REPLACE "(................................)" "\\1\n    " bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1, " bytes "${bytes}")
  file(WRITE "${OUTPUT}" "/* made from ${NAME} */\n#include \"${HEADER}\"\n\n"
    "const char ${SYMBOL}[] = {\n    ${bytes}0x00};\n")
  return()
endif()

function(corefan_embed output file symbol header)
  cmake_path(ABSOLUTE_PATH file OUTPUT_VARIABLE input)
  cmake_path(RELATIVE_PATH input BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE name)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${input} -DNAME=${name} -DOUTPUT=${output} -DSYMBOL=${symbol}
      -DHEADER=${header} -P ${CMAKE_SOURCE_DIR}/cmake/Embed.cmake
    DEPENDS ${input} ${CMAKE_SOURCE_DIR}/cmake/Embed.cmake VERBATIM)
endfunction()
