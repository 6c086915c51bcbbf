// Finds the files installed with the program.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// The path of the default training text: the project's own source and Markdown, collected by the
// build. Throws Error (bad_input) if it is missing.
std::string default_text();
// The folder of the Python programs that plot. Throws as default_text().
std::string plots_folder();
// The folder of the lessons. Throws as default_text().
std::string lessons_folder();
// The folder of the labs, and the root of the sources from which they are cut. Both throw like
// default_text().
std::string labs_folder();
std::string source_folder();
// The folder of the planner's cluster sheets, software profiles and tables. Throws as
// default_text().
std::string planner_folder();
// The path of the program that measures PyTorch's attention. Throws as default_text().
std::string torch_attention_script();
// Whether the build found this library, and so made the module for it.
bool has_module(std::string_view library);

}  // namespace lockstep
