"""Numbers in words, with as many digits as tell them apart."""

__all__ = ["apart"]

MOST = 9  # digits behind the point


def apart(yours: float, right: float, least: int) -> tuple[str, str]:
    """Two numbers with ``least`` digits behind the point, or more if they look alike.

    Example:
        >>> from mha_lib.check.digits import apart
        >>> apart(2.0, 2.645751, 2), apart(0.17204, 0.17196, 3)
        (('2.00', '2.65'), ('0.17204', '0.17196'))
    """
    for digits in (*range(least, MOST + 1), least):
        both = f"{yours:.{digits}f}", f"{right:.{digits}f}"
        if both[0] != both[1]:
            break
    return both
