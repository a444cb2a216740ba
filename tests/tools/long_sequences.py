"""What the gradients of decays over long sequences may be off by, of the roundings of bf16.

Sums of q · dq − k · dk over all of a sequence would be off by more, the longer it is: each term has
the roundings of 16-bit products. Begun anew at anchors, and held at both ends, they are off by what
the terms between two anchors add up to (`drift`), however long the sequence is.
"""

from torch import Tensor

UNIT = 2.0**-8  # what a number of bf16 is rounded to, of itself; the error is half of it at most
# Of rounded products, all are off by UNIT / √12 of their size, or by √3 of that: weights, decayed
# values and states are rounded.
PRODUCT = UNIT / 2
OF_FEW = 1.5  # what the rms of the errors of few anchors may be, of what it is on average
ENDS = (0.0, 0.01, 0.27, 0.27, 0.64, 1.0)  # of packed sequences, of all tokens


def ends_of(length: int) -> list[int]:
    return [int(length * x) for x in ENDS]


def rms(x: Tensor) -> Tensor:
    """Of the tokens, for each head."""
    return x.double().square().mean(0).sqrt()


def drift(terms: Tensor, anchor: int) -> Tensor:
    """The rms, for each head, of a walk over `anchor` tokens that is brought back to where it ends.

    A step is the error of a difference of two such terms. A bridge's variance is in the middle a
    fourth of what the walk's is at its end, and on average a sixth.
    """
    return PRODUCT * (2 * anchor / 6) ** 0.5 * rms(terms)
