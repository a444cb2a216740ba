// The kernel of attention.cu, its tiles counted in base tiles, against float64.
#include <kittens/classic.cuh>

#include "check_attention.cu"
