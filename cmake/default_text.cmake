# Collects Lockstep's own source and Markdown into one training text:
#   cmake -DSOURCE=folder -DOUTPUT=file -P default_text.cmake
# Reads only the project's own folders: SOURCE also holds builds, results and files of the user.
file(GLOB files RELATIVE ${SOURCE} ${SOURCE}/*.md)
foreach(folder bench cli cmake collectives lessons models parallel plots tests)
  file(GLOB_RECURSE more RELATIVE ${SOURCE}
    ${SOURCE}/${folder}/*.h ${SOURCE}/${folder}/*.cc ${SOURCE}/${folder}/*.cu ${SOURCE}/${folder}/*.cuh ${SOURCE}/${folder}/*.md
    ${SOURCE}/${folder}/*.py ${SOURCE}/${folder}/*.cmake)
  list(APPEND files ${more})
endforeach()
list(FILTER files EXCLUDE REGEX "^tests/golden/")
list(SORT files)
file(WRITE ${OUTPUT}.tmp "")
foreach(name IN LISTS files)
  file(READ ${SOURCE}/${name} content)
  file(APPEND ${OUTPUT}.tmp "${content}\n")
endforeach()
file(COPY_FILE ${OUTPUT}.tmp ${OUTPUT} ONLY_IF_DIFFERENT)
file(REMOVE ${OUTPUT}.tmp)
