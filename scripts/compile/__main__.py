"""python -m scripts.compile EXPERIMENT --config=PATH --type=TYPE [--config.FIELD=VALUE ...]; or operators; or check."""

from experiments.core import console
from scripts.compile import command

if __name__ == "__main__":
    console.run(command.main)
