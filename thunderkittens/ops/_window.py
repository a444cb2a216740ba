"""What `window` of an attention may be."""

import operator


def sides_of(op: str, window: tuple[int | None, int | None]) -> tuple[int | None, int | None]:
    """Left and right of a window that is not None; None for no limit."""
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise ValueError(f"{op}: window must be (left, right) or None, got {window!r}")
    return _side(op, "left", window[0]), _side(op, "right", window[1])


def _side(op: str, name: str, size: int | None) -> int | None:
    if size is None:
        return None
    try:
        number = None if isinstance(size, bool) else operator.index(size)
    except TypeError:
        number = None
    if number is None or number < 0:
        raise ValueError(f"{op}: window's {name} must be an integer >= 0 or None, got {size!r}")
    return number
