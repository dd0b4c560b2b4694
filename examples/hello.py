"""Say hello: the smallest execution."""

import platform

print(f"Hello from Python {platform.python_version()} on {platform.machine()}.")
