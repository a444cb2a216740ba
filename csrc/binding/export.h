// Marks what the Python module and the simulator library find in libthunderkittens.so; all else is
// hidden.
#pragma once

#ifndef KITTENS_EXPORT
#define KITTENS_EXPORT __attribute__((visibility("default")))
#endif
