"""python -m scripts.aot EXPERIMENT --config=PATH --type=TYPE [-- OVERRIDES]; or operators, check, tables; or --help"""

import sys

from scripts.aot import command

if __name__ == "__main__":
    sys.exit(command.main(sys.argv[1:]))
