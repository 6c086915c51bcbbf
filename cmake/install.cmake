# What is installed: a folder of its own with the program, its modules and what they read, in the places that they have in a build
# folder; a link to the program; and libraries, headers and the files for find_package(lockstep).
set(LOCKSTEP_HOME ${CMAKE_INSTALL_LIBDIR}/lockstep)

set(libraries base collectives transport_threads launch)
set(folders collectives)
if(NOT LOCKSTEP_PARTS STREQUAL collectives)
  list(APPEND libraries transport_virtual models schedules parallel)
  list(APPEND folders models parallel)
endif()
install(TARGETS ${libraries} EXPORT lockstep LIBRARY DESTINATION ${LOCKSTEP_HOME}/lib ARCHIVE DESTINATION ${LOCKSTEP_HOME}/lib)
foreach(module openmpi mpich nccl gloo cuda)
  if(TARGET lockstep_${module})
    set_target_properties(lockstep_${module} PROPERTIES INSTALL_RPATH "$ORIGIN")
    # Built only where they can be used: see the target `program`.
    install(TARGETS lockstep_${module} LIBRARY DESTINATION ${LOCKSTEP_HOME}/lib OPTIONAL)
  endif()
endforeach()

list(TRANSFORM folders PREPEND ${PROJECT_SOURCE_DIR}/)
install(DIRECTORY ${folders} DESTINATION ${LOCKSTEP_HEADERS} FILES_MATCHING PATTERN "*.h")
set(LOCKSTEP_CMAKE ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)
install(EXPORT lockstep NAMESPACE lockstep:: DESTINATION ${LOCKSTEP_CMAKE})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/lockstep-config.cmake.in ${PROJECT_BINARY_DIR}/lockstep-config.cmake
  INSTALL_DESTINATION ${LOCKSTEP_CMAKE})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstep-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstep-config.cmake ${PROJECT_BINARY_DIR}/lockstep-config-version.cmake
  DESTINATION ${LOCKSTEP_CMAKE})

# cpack -G DEB. The package fits any machine of this kind of processor if LOCKSTEP_NATIVE is OFF.
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_VENDOR Lockstep)
set(CPACK_PACKAGE_CONTACT "Lockstep <lockstep@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Communication and parallelism of large-model training, from scratch")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-matplotlib, zstd")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "g++, openmpi-bin, mpich")
include(CPack)
