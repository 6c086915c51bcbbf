// A lesson as one static HTML page, with the outputs, numbers and pictures of this machine's runs.
#pragma once

#include <string>

#include "cli/lessons/front.h"
#include "cli/lessons/runs.h"
#include "cli/lessons/text.h"

namespace lockstep {

// Runs all commands of the lesson, and returns its page among those of the site.
std::string page_of_lesson(const LessonText& lesson, const LessonRuns& runs,
                           const LessonSite& site);

// The page of contents, index.html, in the folder above the lessons' folders.
std::string page_of_contents(const LessonSite& site);

}  // namespace lockstep
