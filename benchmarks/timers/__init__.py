"""What else takes time, each a command: ``python -m benchmarks.timers.pages``.

``book`` the build and the tests, ``check`` naming a mistake, ``course`` a class,
``grade`` a submission, ``imports`` what ``import mha_lib`` adds to torch, ``models``
training and writing beside other people's models, ``pages`` loading and answering,
``widgets`` every control of each.
"""
