// The same calls: what is checked is what they leave at anchors.
#include "linear_attention.cu"
