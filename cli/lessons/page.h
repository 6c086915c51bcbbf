// A lesson as one static HTML page, with the outputs, numbers and pictures of this machine's runs.
#pragma once

#include <string>

#include "cli/lessons/runs.h"
#include "cli/lessons/text.h"

namespace lockstep {

// Runs all commands of the lesson, and returns the page.
std::string page_of_lesson(const LessonText& lesson, const LessonRuns& runs);

}  // namespace lockstep
