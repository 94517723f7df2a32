"""python -m scripts.launch PLATFORM EXPERIMENT [options] [-- --config.FIELD=VALUE ...]; see scripts/launch/README.md"""

import sys

from scripts.launch import command

if __name__ == "__main__":
    sys.exit(command.main(sys.argv[1:]))
