# syrtos_sources(<variable> <pattern>...)
# Lists a folder's sources; CONFIGURE_DEPENDS notices a new file at the next build.
function(syrtos_sources variable)
  file(GLOB sources CONFIGURE_DEPENDS ${ARGN})
  set(${variable} "${sources}" PARENT_SCOPE)
endfunction()

# syrtos_layer(<name> SOURCES <pattern>... [LINK <layer>...])
# One layer of the core: a static PIC library that sees only the layers it is linked to. A layer
# without sources is skipped, and so is a link to it.
function(syrtos_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  syrtos_sources(sources ${arg_SOURCES})
  if(NOT sources)
    message(STATUS "${name}: no sources, skipped")
    return()
  endif()
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC syrtos_headers)
  foreach(lower IN LISTS arg_LINK)
    if(TARGET ${lower})
      target_link_libraries(${name} PUBLIC ${lower})
    endif()
  endforeach()
endfunction()

# syrtos_export_map(<target> <file>)
# Exports from a library exactly what a linker version script names.
function(syrtos_export_map target map)
  target_link_options(${target} PRIVATE "LINKER:--version-script=${map}")
  set_target_properties(${target} PROPERTIES LINK_DEPENDS "${map}")
endfunction()

# syrtos_install(<target>...)
# Puts a library into the Python package, where it finds its neighbours by $ORIGIN.
function(syrtos_install)
  foreach(target IN LISTS ARGN)
    set_target_properties(${target} PROPERTIES
      BUILD_RPATH_USE_ORIGIN ON INSTALL_RPATH "$ORIGIN" LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
    install(TARGETS ${target} LIBRARY DESTINATION syrtos NAMELINK_SKIP)
  endforeach()
endfunction()
