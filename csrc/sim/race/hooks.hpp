#pragma once

namespace kittens::sim::race {

// Whether any kernel of this program was compiled with -fsanitize=thread, which race mode needs.
bool is_instrumented();

}  // namespace kittens::sim::race
