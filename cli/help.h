// The help of every command: its own flags first, in groups, and examples at the end.
#pragma once

#include <CLI/App.hpp>
#include <string>

namespace lockstep {

// The text in lines of at most `width` characters; its own line breaks stay.
std::string wrapped(const std::string& text, std::size_t width);

// Sets the layout of the help of `program` and of commands added later.
void set_help_layout(CLI::App& program);
// Adds examples to the help of all commands but those of `train`, `plan` and `bench`, which exist once these are chosen.
void add_examples(CLI::App& program);
void add_train_examples(CLI::App& train);
void add_plan_examples(CLI::App& plan);
void add_bench_examples(CLI::App& bench);

}  // namespace lockstep
