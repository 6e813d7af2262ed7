"""Faults that change no result, so that no test can find them: {reason: their keys}.

A key names the function and the change, not the line. The command says when a key
names nothing any more.
"""

EQUIVALENT: dict[str, tuple[str, ...]] = {}
