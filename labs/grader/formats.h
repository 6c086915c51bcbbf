// A grade in the formats of other programs. The same grade always has the same text.
#pragma once

#include <string>

#include "labs/grader/grade.h"

namespace lockstep {

std::string text_of(const Grade& grade);
// "lockstep.grade/1".
std::string json_of(const Grade& grade);
// results.json of Gradescope's autograder.
std::string gradescope_of(const Grade& grade);
// The result of GitHub Classroom's graders, version 1, which the reporter of classroom-resources reads
// as base64.
std::string classroom_of(const Grade& grade);
std::string junit_of(const Grade& grade);
std::string markdown_of(const Grade& grade);
// One page: the obligations, and the submission's trace next to our solution's.
std::string html_of(const Grade& grade);

}  // namespace lockstep
