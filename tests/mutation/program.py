"""What a program of the mutation tests is made of."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Program:
    """A test program of two sources, in a family's folder `programs`.

    Attributes:
        family: Whose folder.
        stem: Of `<stem>.cu`, which includes what is mutated and is compiled for each mutant, and of
            `<stem>_check.cu`, which calls it, knows what should come out, and is compiled once.
        defines: Macros for both.
    """

    family: str
    stem: str
    defines: tuple[str, ...] = ()

    @property
    def kernel(self) -> Path:
        """The source with the kernel, relative to the repository."""
        return Path(f"tests/families/{self.family}/programs/{self.stem}.cu")

    @property
    def check(self) -> Path:
        """The source with the check."""
        return self.kernel.with_stem(f"{self.stem}_check")

    @property
    def name(self) -> str:
        """E.g. `attention CONFIGS=0`."""
        return " ".join((self.stem, *self.defines))
