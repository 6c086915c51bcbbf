# Gathers Lockstep's own source and Markdown into one text to train on:
#   cmake -DSOURCE=folder -DOUTPUT=file -P default_text.cmake
file(GLOB_RECURSE files RELATIVE ${SOURCE}
  ${SOURCE}/*.h ${SOURCE}/*.cc ${SOURCE}/*.md ${SOURCE}/*.py ${SOURCE}/*.cmake)
list(FILTER files EXCLUDE REGEX "^(build|out)/")
list(SORT files)
# Content goes from file to file: CMake's strings would lose semicolons and brackets.
file(WRITE ${OUTPUT}.tmp "")
foreach(name IN LISTS files)
  file(READ ${SOURCE}/${name} content)
  file(APPEND ${OUTPUT}.tmp "${content}\n")
endforeach()
file(COPY_FILE ${OUTPUT}.tmp ${OUTPUT} ONLY_IF_DIFFERENT)
file(REMOVE ${OUTPUT}.tmp)
