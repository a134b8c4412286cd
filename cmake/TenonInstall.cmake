# Installs two components: `runtime` (the program, the library, the default model, CLIP's vocabulary), which packages
# contain, and `development`. After cmake --install, find_package(tenon) and find_package(Tenon) both work: the library
# is tenon::tenon with its public headers, the command line, and the default model.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Output of the program (its manual page, shell completion) for `arguments`.
function(_tenon_install_described arguments file destination)
  set(made ${PROJECT_BINARY_DIR}/described/${destination})
  install(CODE "file(MAKE_DIRECTORY \"${made}\")
    execute_process(COMMAND \"$<TARGET_FILE:tenon_cli>\" ${arguments} OUTPUT_FILE \"${made}/${file}\" COMMAND_ERROR_IS_FATAL ANY)"
          COMPONENT runtime)
  install(FILES ${made}/${file} DESTINATION ${destination} COMPONENT runtime)
endfunction()

function(tenon_install)
  install(TARGETS tenon_installed EXPORT tenon LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
          NAMELINK_COMPONENT development)
  if(TARGET tenon_cli)
    file(RELATIVE_PATH to_library /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
    set_target_properties(tenon_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${to_library}")
    install(TARGETS tenon_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
    _tenon_install_described(man tenon.1 ${CMAKE_INSTALL_MANDIR}/man1)
    _tenon_install_described("completion;bash" tenon ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
    _tenon_install_described("completion;zsh" _tenon ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    _tenon_install_described("completion;fish" tenon.fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  endif()
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/assets/ DESTINATION ${CMAKE_INSTALL_DATADIR}/tenon COMPONENT runtime)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/tenon RENAME copyright
          COMPONENT runtime)

  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/tenon)
  install(EXPORT tenon NAMESPACE tenon:: FILE tenon-targets.cmake DESTINATION ${package} COMPONENT development)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tenon-config.cmake.in ${PROJECT_BINARY_DIR}/tenon-config.cmake
                                INSTALL_DESTINATION ${package})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/tenon-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/tenon-config.cmake ${PROJECT_BINARY_DIR}/tenon-config-version.cmake
          DESTINATION ${package} COMPONENT development)
  tenon_debian_package()
endfunction()

# `cpack -G DEB` (tools/package.sh): the runtime component as the package tenon, its dependencies by dpkg-shlibdeps.
function(tenon_debian_package)
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_COMPONENTS_ALL runtime)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_PACKAGE_CONTACT "The authors of Tenon")
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME tenon)
  set(CPACK_DEBIAN_RUNTIME_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
  set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "${PROJECT_DESCRIPTION}")
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
  include(CPack)
endfunction()
