// The generic kernel in the calls of attention_backward_cases.h.
#include "attention_backward_cases.h"
