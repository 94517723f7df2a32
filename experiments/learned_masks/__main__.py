"""python -m experiments.learned_masks --config=configs/learned_masks.py --workdir=DIR; or --help"""

if __name__ == "__main__":
    from experiments.core import cli
    from experiments.learned_masks import experiment

    cli.main(experiment.RECIPE)
