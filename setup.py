"""What pyproject.toml cannot say: a wheel starts from nothing.

setuptools packs whatever lies in build/lib, also modules that were deleted since.
"""

import shutil

from setuptools import setup
from setuptools.command.build_py import build_py


class FreshBuild(build_py):
    def run(self) -> None:
        if not self.editable_mode:
            shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(cmdclass={"build_py": FreshBuild})
