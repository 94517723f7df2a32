"""python -m experiments.sparse_attention --config=configs/sparse_attention.py --workdir=DIR; or --help"""

if __name__ == "__main__":
    from experiments.core import cli
    from experiments.sparse_attention import experiment

    cli.main(experiment.RECIPE)
