# cmake --install (find_package(tenon) and find_package(Tenon) both work): the library as tenon::tenon with its public headers, the command line, and the default model.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

function(tenon_install)
  install(TARGETS tenon EXPORT tenon LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  if(TARGET tenon_cli)
    file(RELATIVE_PATH to_library /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
    set_target_properties(tenon_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${to_library}")
    install(TARGETS tenon_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
  foreach(layer core expr kernels plan runtime explain optim io nn models pipelines)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/${layer}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tenon/${layer}
            FILES_MATCHING PATTERN "*.h" PATTERN "*.def")
  endforeach()
  install(FILES ${PROJECT_SOURCE_DIR}/src/backend/backend.h ${PROJECT_SOURCE_DIR}/src/backend/stream.h
                ${PROJECT_SOURCE_DIR}/src/backend/weights.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tenon/backend)
  install(FILES ${PROJECT_BINARY_DIR}/include/expr_generated/tenon/expr_generated/all_nodes.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/tenon/expr_generated)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/assets/default-model/ DESTINATION ${CMAKE_INSTALL_DATADIR}/tenon/default-model OPTIONAL)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/tenon)

  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/tenon)
  install(EXPORT tenon NAMESPACE tenon:: FILE tenon-targets.cmake DESTINATION ${package})
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tenon-config.cmake.in ${PROJECT_BINARY_DIR}/tenon-config.cmake
                                INSTALL_DESTINATION ${package})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/tenon-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/tenon-config.cmake ${PROJECT_BINARY_DIR}/tenon-config-version.cmake
          DESTINATION ${package})
endfunction()
