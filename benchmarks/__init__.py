"""What attention costs, here and in other libraries: ``python -m benchmarks``.

The ``plan`` says what is measured: jobs, each done by a ``worker`` of its own, as
``jobs`` says. All ``contestants`` (``peers`` are other libraries, ``cuda`` needs a GPU)
get one ``workload``; ``parity`` refuses whoever computes something else. ``timing``,
``memory``, ``shares`` and ``roofline`` measure. The answers go to a file of ``results``
beside a description of the ``machine``; ``views`` read it for the tables of the
``report`` with its ``goals``, for the ``plots`` and for the ``chapter``.

Whole language models, ours and other people's, are ``models``.

``timers`` are commands apart: they time the book, imports, models, pages and grading.
"""
