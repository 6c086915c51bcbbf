// The file that `lockstep plan search` writes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "parallel/planner/search.h"

namespace lockstep {

// What a search was asked, and all that it found.
struct SearchAnswer {
  const nlohmann::ordered_json& model;  // the keys of its config.json
  std::string cluster, profile;
  int gpus = 1;
  SearchResult result;
  std::vector<Neighbour> why_not, neighbours;
  std::vector<WhatIf> what_if;
  std::vector<std::string> advice;
};

// schemas/search-1.schema.json
std::string search_json(const SearchAnswer& answer);

}  // namespace lockstep
