"""What modules check of their settings when they are made, where a mistake is nearest."""

import operator


def check_choice(module: str, name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raises unless an option is one of some strings.

    Args:
        module: For the message.
        name: Of the option.
        value: What it was given.
        choices: What it may be.

    Raises:
        TypeError: It is no string.
        ValueError: It is another one.
    """
    if isinstance(value, str) and value in choices:
        return
    listed = ", ".join(f'"{choice}"' for choice in choices[:-1]) + f' or "{choices[-1]}"'
    error = ValueError if isinstance(value, str) else TypeError
    raise error(f"{module}: {name} must be {listed}, got {value!r}")


def check_numbers(module: str, **options: object) -> None:
    """Raises a TypeError unless each option is a number; whether it is allowed, the op says."""
    for name, value in options.items():
        try:
            is_number = not isinstance(value, bool | str) and float(value) is not None  # type: ignore[arg-type]
        except (TypeError, ValueError):
            is_number = False
        if not is_number:
            raise TypeError(f"{module}: {name} must be a number, got {_shown(value)}")


def check_sizes(module: str, **options: object) -> None:
    """Raises unless each option is an integer of at least 0; a bool is none."""
    for name, value in options.items():
        try:
            size = None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            size = None
        if size is None:
            raise TypeError(f"{module}: {name} must be an integer, got {_shown(value)}")
        if size < 0:
            raise ValueError(f"{module}: {name} must be >= 0, got {size}")


def _shown(value: object) -> str:
    return "None" if value is None else f"{type(value).__name__} {value!r}"
