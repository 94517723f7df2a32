"""python -m scripts.launch PLATFORM EXPERIMENT [options] [-- --config.FIELD=VALUE ...]; see scripts/launch/README.md"""

from experiments.core import console
from scripts.launch import command

if __name__ == "__main__":
    console.run(command.main)
