// Walks a lesson in the terminal. Predictions are locked before the runs that they are compared with.
#pragma once

#include <string>

#include "cli/lessons/answers.h"
#include "cli/lessons/progress.h"
#include "cli/lessons/text.h"

namespace lockstep {

// The files of the runs go to a folder of the lesson's name in `output`. Throws Error if a command
// fails, or if an answer is missing or invalid.
void walk(const LessonText& lesson, LessonAnswers& answers, LessonProgress& progress,
          const std::string& output);

}  // namespace lockstep
