// Files that launches write about themselves: one JSON list each, complete after every launch.
#pragma once

#include <string>
#include <string_view>

namespace kittens::sim {

// Appends an item to the list in a file, which begins with `head` and is made new by the first item
// of a process. Throws host::error when it cannot be written.
void append_to_list(const std::string& path, std::string_view head, std::string_view item);

// A string of JSON, with its quotes.
std::string quoted_json(std::string_view text);

}  // namespace kittens::sim
