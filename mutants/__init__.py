"""Do the tests notice? Small faults are put into the library, one at a time.

`python -m mutants` makes the faults, runs for each the tests that reach it, and
says how many were found. A fault that no test can find, because it changes no result,
stands in `equivalent.py` with its reason; any other survivor asks for a test.
"""
