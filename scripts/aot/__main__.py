"""python -m scripts.aot EXPERIMENT --config=PATH --type=TYPE [-- OVERRIDES]; or operators, check, tables; or --help"""

from experiments.core import console
from scripts.aot import command

if __name__ == "__main__":
    console.run(command.main)
