# The tape's vector maths: one file per instruction set, optimised in every build type.
set(_optimised -O3)
if(TENON_SANITIZE MATCHES undefined)  # compiles in a third less time; GCC 12 gives false warnings at -O2
  set(_optimised -O2)
endif()
set(_tape ${PROJECT_SOURCE_DIR}/tenon/backend/cpu/tape)
set(_tape_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mprefer-vector-width=512)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND _tape_avx512 -Wno-maybe-uninitialized -Wno-uninitialized) # GCC 12 warns of its own intrinsics
endif()
set_source_files_properties(${_tape}/vec_avx2.cpp PROPERTIES COMPILE_OPTIONS "${_optimised};-fno-math-errno;-mavx2;-mfma;-mf16c")
set_source_files_properties(${_tape}/vec_avx512.cpp PROPERTIES COMPILE_OPTIONS "${_optimised};-fno-math-errno;${_tape_avx512}")
