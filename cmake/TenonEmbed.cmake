# Files that become text in a library or a program: kernels' headers, tables, HTML pages. Nothing is read at run time.
set(TENON_EMBED ${CMAKE_CURRENT_LIST_DIR}/embed.cmake)

# Defines `function`, declared in `header`, in `target`: it returns the texts of the files given as name=file pairs.
function(tenon_embed_texts target header function)
  list(TRANSFORM ARGN REPLACE "^[^=]*=" "" OUTPUT_VARIABLE files)
  list(JOIN ARGN "|" pairs)
  string(REGEX REPLACE ".*::" "" name ${function})
  set(embedded ${PROJECT_BINARY_DIR}/generated/${target}_${name}.cpp)
  add_custom_command(OUTPUT ${embedded}
                     COMMAND ${CMAKE_COMMAND} -DOUTPUT=${embedded} -DHEADER=${header} -DFUNCTION=${function}
                             "-DPAIRS=${pairs}" -P ${TENON_EMBED}
                     DEPENDS ${files} ${TENON_EMBED} COMMENT "Embedding: ${name}" VERBATIM)
  target_sources(${target} PRIVATE ${embedded})
endfunction()
