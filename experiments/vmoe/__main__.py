"""python -m experiments.vmoe --config=configs/vmoe.py --workdir=DIR"""

from experiments.core import cli
from experiments.vmoe.experiment import RECIPE

if __name__ == "__main__":
    cli.main(RECIPE)
