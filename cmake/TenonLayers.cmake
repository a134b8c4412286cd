# Layers as object libraries. Includes are paths of the tree, so there is one include root, the checkout (and one for
# generated headers). Every build of the library checks that no include points upward (tools/check_layers.py).

set(TENON_WARNINGS -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wno-psabi)
# GCC 12 warns falsely of overlapping copies in "literal" + std::string (its bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND TENON_WARNINGS -Wno-restrict)
endif()
if(TENON_WERROR)
  list(APPEND TENON_WARNINGS -Werror)
endif()
add_library(tenon_flags INTERFACE)
# Nothing here reads errno or floating-point traps; without them the compiler can vectorise roots and rounding.
target_include_directories(tenon_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/generated)
target_compile_options(tenon_flags INTERFACE ${TENON_WARNINGS} -fno-math-errno -fno-trapping-math)
if(TENON_SANITIZE)
  target_compile_options(tenon_flags INTERFACE -fsanitize=${TENON_SANITIZE} -fno-omit-frame-pointer
                         -fno-sanitize-recover=all)
  target_link_options(tenon_flags INTERFACE -fsanitize=${TENON_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # handles of foreign libraries are opaque types of our own
    target_compile_options(tenon_flags INTERFACE -fno-sanitize=function)
    find_program(TENON_LLD ld.lld)
    if(TENON_LLD)  # six times as fast, and every fuzzer contains the whole library
      target_link_options(tenon_flags INTERFACE -fuse-ld=lld)
    endif()
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(tenon_flags INTERFACE "SHELL:-include ${PROJECT_SOURCE_DIR}/cmake/json_layout.h")
endif()
# Coverage for fuzzers is instrumented in the whole library except the CPU's kernels, whose branches do not depend on
# input.
add_library(tenon_counted INTERFACE)
if(TENON_FUZZ)
  target_compile_options(tenon_counted INTERFACE -fsanitize=fuzzer-no-link)
endif()

set(TENON_LAYERS "" CACHE INTERNAL "")

# For a target whose code runs once, while other code runs a thousand times: optimising it would be half of its compile
# time. `level`: in a release build; under a sanitizer it is not optimised at all.
function(tenon_runs_once target level)
  if(TENON_SANITIZE)
    target_compile_options(${target} PRIVATE -O0)
  else()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${level}>)
  endif()
endfunction()

# FLAT: sub-folders are something else (backends). Presets compile up to 24 files of a layer as one (unity builds),
# because most of a file's time goes into headers; so file-local names must differ within a layer.
function(tenon_layer name)
  cmake_parse_arguments(A "FLAT" "" "DEPENDS;LIBRARIES" ${ARGN})
  set(folder ${PROJECT_SOURCE_DIR}/tenon/${name})
  list(TRANSFORM A_DEPENDS PREPEND tenon_)
  if(A_FLAT)
    file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  else()
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  endif()
  if(NOT sources)  # a layer with only headers
    set(sources ${PROJECT_BINARY_DIR}/headers_only.cpp)
    file(CONFIGURE OUTPUT ${sources} CONTENT "")
  endif()
  add_library(tenon_${name} OBJECT ${sources})
  target_link_libraries(tenon_${name} PUBLIC tenon_flags ${A_DEPENDS} ${A_LIBRARIES} PRIVATE tenon_counted)
  if(name STREQUAL "expr")
    _tenon_node_list(${folder}/nodes ${PROJECT_BINARY_DIR}/generated/tenon/expr_generated)
  endif()
  if(name MATCHES "^(explain|optim|nn|models|pipelines|train)$")
    tenon_runs_once(tenon_${name} -O2)
  endif()
  set(TENON_LAYERS ${TENON_LAYERS} tenon_${name} CACHE INTERNAL "")
endfunction()

# The folder is the registry: every NODE(Name ..) in headers of `folder` goes into one generated list.
function(_tenon_node_list folder generated)
  file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${headers})
  set(text "// Generated from tenon/expr/nodes: every node of the expression algebra.\n#pragma once\n")
  set(names "")
  set(bodies "// Generated from tenon/expr/nodes: NODE_BODY(struct, header) for every node.\n")
  foreach(header ${headers})
    get_filename_component(base ${header} NAME)
    file(STRINGS ${header} lines REGEX "^NODE\\(")
    foreach(line ${lines})
      string(REGEX REPLACE "^NODE\\(([A-Za-z0-9_]+).*" "\\1" node "${line}")
      list(APPEND names ${node})
      string(APPEND bodies "NODE_BODY(${node}, \"tenon/expr/nodes/${base}\")\n")
    endforeach()
    string(APPEND text "#include \"tenon/expr/nodes/${base}\"\n")
  endforeach()
  list(JOIN names ", nodes::" joined)
  string(APPEND text "namespace tenon { using AllNodes = TypeList<nodes::${joined}>; }\n")
  file(CONFIGURE OUTPUT ${generated}/all_nodes.h CONTENT "${text}" @ONLY)
  file(CONFIGURE OUTPUT ${generated}/node_bodies.inc CONTENT "${bodies}" @ONLY)
endfunction()

# Every folder below tenon/backend is a backend: it may include backend.h and the kernels' contracts.
# A backend's own CMake file, if there is one, adds flags or libraries to tenon_backend_<name>.
function(tenon_backends folder)
  file(GLOB backends CONFIGURE_DEPENDS LIST_DIRECTORIES true ${PROJECT_SOURCE_DIR}/${folder}/*)
  foreach(dir ${backends})
    if(IS_DIRECTORY ${dir})
      get_filename_component(name ${dir} NAME)
      file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cpp)
      if(TENON_BACKENDS AND NOT name IN_LIST TENON_BACKENDS)
        continue()
      endif()
      if(sources)
        add_library(tenon_backend_${name} OBJECT ${sources})
        target_link_libraries(tenon_backend_${name} PUBLIC tenon_flags tenon_backend)
        if(NOT name STREQUAL "cpu")
          target_link_libraries(tenon_backend_${name} PRIVATE tenon_counted)
        endif()
        if(EXISTS ${dir}/backend.cmake)
          include(${dir}/backend.cmake)
        endif()
        set(TENON_LAYERS ${TENON_LAYERS} tenon_backend_${name} CACHE INTERNAL "")
      endif()
    endif()
  endforeach()
endfunction()

# Building the library checks that no include points upward: a violation fails the build, like a missing file.
function(_tenon_check_layers)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  set(check ${PROJECT_SOURCE_DIR}/tools/check_layers.py)
  if(NOT Python3_FOUND OR NOT EXISTS ${check})  # the archive from which wheels are made has no tools
    return()
  endif()
  set(patterns ${PROJECT_SOURCE_DIR}/tenon/*.h ${PROJECT_SOURCE_DIR}/tenon/*.cpp ${PROJECT_SOURCE_DIR}/tenon/*.def)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${patterns})
  set(stamp ${PROJECT_BINARY_DIR}/generated/layers_checked)
  add_custom_command(OUTPUT ${stamp} COMMAND ${Python3_EXECUTABLE} ${check} COMMAND ${CMAKE_COMMAND} -E touch ${stamp}
                     DEPENDS ${sources} ${check} ${PROJECT_SOURCE_DIR}/CMakeLists.txt COMMENT "Checking the layers" VERBATIM)
  add_custom_target(tenon_layers_checked DEPENDS ${stamp})
  add_dependencies(tenon tenon_layers_checked)
endfunction()

# libtenon: shared, so that nodes, skeletons, backends and samplers that register themselves are never dropped.
function(tenon_library)
  add_library(tenon SHARED)
  add_library(tenon::tenon ALIAS tenon)
  target_link_libraries(tenon PRIVATE ${TENON_LAYERS})
  target_include_directories(tenon PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR};${PROJECT_BINARY_DIR}/generated>")
  tenon_usage(tenon)
  _tenon_check_layers()
endfunction()

# Requirements of anything that links the library.
function(tenon_usage library)
  target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:include>)
  target_link_libraries(${library} INTERFACE nlohmann_json::nlohmann_json spdlog::spdlog)  # used in public headers
  target_compile_features(${library} PUBLIC cxx_std_20)
  if(SKBUILD)  # wheels cannot contain symbolic links
    set_target_properties(${library} PROPERTIES VERSION 0 SOVERSION 0)
  else()
    set_target_properties(${library} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0)
  endif()
endfunction()
