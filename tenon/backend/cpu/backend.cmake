# One file per instruction set, each with its own flags; tile_ops.cpp selects one at run time. Optimised in every build
# type: unoptimised, their loops are unusable.
include(${CMAKE_CURRENT_LIST_DIR}/tape/flags.cmake)
set(_isa ${PROJECT_SOURCE_DIR}/tenon/backend/cpu/tile/isa)
set(_avx512 -Wno-maybe-uninitialized -Wno-uninitialized # GCC 12 warns of its own intrinsics
    -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mprefer-vector-width=512)
set_source_files_properties(${_isa}/avx2.cpp PROPERTIES COMPILE_OPTIONS "${_optimised};-mavx2;-mfma;-mf16c")
set_source_files_properties(${_isa}/avxvnni.cpp PROPERTIES COMPILE_OPTIONS "${_optimised};-mavx2;-mfma;-mf16c;-mavxvnni")
set_source_files_properties(${_isa}/avx512.cpp PROPERTIES COMPILE_OPTIONS "${_optimised};${_avx512}")
set_source_files_properties(${_isa}/avx512vnni.cpp PROPERTIES COMPILE_OPTIONS "${_optimised};${_avx512};-mavx512vnni")
set_source_files_properties(${_isa}/avx512bf16.cpp PROPERTIES COMPILE_OPTIONS "${_optimised};${_avx512};-mavx512bf16;-mavx512vnni")
set_source_files_properties(${_isa}/amx.cpp PROPERTIES COMPILE_OPTIONS "${_optimised};${_avx512};-mavx512bf16")
# Checks of undefined behaviour triple the compile time of these files. The same templates are checked in the AVX2
# files. Addresses are checked here too, by calls: a branch per lane of a mask would take three times as long.
if(TENON_SANITIZE MATCHES undefined)
  set(_checks -fno-sanitize=undefined)
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    list(APPEND _checks -fsanitize-address-outline-instrumentation)
  endif()
  set_property(SOURCE ${_isa}/avx512.cpp ${_isa}/avx512vnni.cpp ${_isa}/avx512bf16.cpp ${_isa}/amx.cpp
               ${_tape}/vec_avx512.cpp APPEND PROPERTY COMPILE_OPTIONS ${_checks})
endif()
