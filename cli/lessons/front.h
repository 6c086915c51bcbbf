// The first screen of a lesson's page, the links between the pages of a site, and its contents.
#pragma once

#include <string>
#include <vector>

#include "cli/lessons/text.h"

namespace lockstep {

// The lessons that are written together, in reading order: each page links to its neighbours.
using LessonSite = std::vector<LessonText>;

// Title, card, animation (HTML, or empty), the first paragraph of the problem and the first question.
// Takes what it shows out of the pieces.
std::string front_html(const LessonText& lesson, std::vector<LessonPiece>& pieces,
                       const std::string& scene, const std::vector<std::string>& pages);

// Links to the contents and to the lessons before and after; empty for a site of one lesson.
std::string neighbours_html(const LessonText& lesson, const LessonSite& site);

// The page of contents: each lesson with its minutes, its aim, and how much of it is locked.
std::string contents_html(const LessonSite& site);

// The names of the lessons' folders, to which pages of the site link.
std::vector<std::string> pages_of(const LessonSite& site);

}  // namespace lockstep
