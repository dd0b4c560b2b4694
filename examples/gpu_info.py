"""Print what Berth tells an execution about itself and its GPUs."""

import os

names = [name for name in os.environ if name.startswith("BERTH_")]
for name in sorted(names) + ["CUDA_VISIBLE_DEVICES"]:
    print(f"{name}={os.environ.get(name, '')}")
