# One file per instruction set, each with its own flags; which one runs is chosen at run time (tile_ops.cpp). Optimised in
# every build type: their loops are unusable otherwise.
include(${CMAKE_CURRENT_LIST_DIR}/tape/flags.cmake)
set(_isa ${PROJECT_SOURCE_DIR}/tenon/backend/cpu/tile/isa)
set(_avx512 -Wno-maybe-uninitialized -Wno-uninitialized # GCC 12 warns of its own intrinsics
    -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mprefer-vector-width=512)
set_source_files_properties(${_isa}/avx2.cpp PROPERTIES COMPILE_OPTIONS "${_optimised};-mavx2;-mfma;-mf16c")
set_source_files_properties(${_isa}/avx512.cpp PROPERTIES COMPILE_OPTIONS "${_optimised};${_avx512}")
set_source_files_properties(${_isa}/avx512bf16.cpp PROPERTIES COMPILE_OPTIONS "${_optimised};${_avx512};-mavx512bf16;-mavx512vnni")
set_source_files_properties(${_isa}/amx.cpp PROPERTIES COMPILE_OPTIONS "${_optimised};${_avx512};-mavx512bf16")
# Checks of undefined behaviour triple the time that these files take to compile. The same templates are checked in the
# files of AVX2; addresses are checked here too, by calls: a branch for each lane of a mask takes three times as long.
if(TENON_SANITIZE MATCHES undefined)
  set(_checks -fno-sanitize=undefined)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    list(APPEND _checks -fsanitize-address-outline-instrumentation)
  endif()
  set_property(SOURCE ${_isa}/avx512.cpp ${_isa}/avx512bf16.cpp ${_isa}/amx.cpp ${_tape}/vec_avx512.cpp
               APPEND PROPERTY COMPILE_OPTIONS ${_checks})
endif()
