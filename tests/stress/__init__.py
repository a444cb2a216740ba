"""The kernels with asynchronous copies, repeated on a GPU: the same bits, also beside noise."""
