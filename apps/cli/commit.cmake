# Writes the commit of SOURCE to OUT, touching it only if it changed. Run at every build.
execute_process(COMMAND git -C ${SOURCE} describe --always --abbrev=10 --exclude=* --dirty=+ OUTPUT_VARIABLE commit
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "#pragma once\n#define TENON_COMMIT \"${commit}\"\n")
