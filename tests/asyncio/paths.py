"""Where the package under test is: the sources, or what COREFAN_PYTHON names (a build or an installation)."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = os.environ.get("COREFAN_PYTHON", str(ROOT / "worker" / "asyncio"))
sys.path.insert(0, PACKAGE)
