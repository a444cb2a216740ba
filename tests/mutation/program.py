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
        of: The stem of `<of>.cu`, where that is compiled in place of one of its own: of another
            program, whose kernel this one checks otherwise.
        forms: Macros for the first alone: programs that differ in these share a check.
    """

    family: str
    stem: str
    defines: tuple[str, ...] = ()
    of: str = ""
    forms: tuple[str, ...] = ()

    @property
    def kernel(self) -> Path:
        """The source with the kernel, relative to the repository."""
        return Path(f"tests/families/{self.family}/programs/{self.of or self.stem}.cu")

    @property
    def check(self) -> Path:
        """The source with the check."""
        return self.kernel.with_stem(f"{self.stem}_check")

    @property
    def object(self) -> str:
        """The name of the object of the kernel, which programs of the same one share."""
        return "_".join((self.kernel.stem, *self.defines, *self.forms))

    @property
    def name(self) -> str:
        """E.g. `attention CONFIGS=0`."""
        return " ".join((self.stem, *self.defines, *self.forms))
