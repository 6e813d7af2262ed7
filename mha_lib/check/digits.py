"""Numbers in words, with as many digits as tell them apart."""

__all__ = ["apart"]

MOST = 9  # digits behind the point
ALL = 17  # that a float64 has


def apart(yours: float, right: float, least: int) -> tuple[str, str]:
    """Two numbers with ``least`` digits behind the point, or more if they look alike.

    Example:
        >>> from mha_lib.check.digits import apart
        >>> apart(2.0, 2.645751, 2), apart(0.17204, 0.17196, 3)
        (('2.00', '2.65'), ('0.17204', '0.17196'))
        >>> apart(2e-19, 4.806e-19, 3), apart(0.5, 0.5, 3)
        (('2e-19', '4.806e-19'), ('0.500', '0.500'))
    """
    points = (f".{digits}f" for digits in range(least, MOST + 1))
    powers = (f".{digits}g" for digits in range(4, ALL + 1))  # of ten, if they are tiny
    for form in (*points, *powers, f".{least}f"):
        both = f"{yours:{form}}", f"{right:{form}}"
        if both[0] != both[1]:
            break
    return both
