"""Many runs of one experiment as one command: hyper-parameters chosen on validation, final runs, a table, figures."""
