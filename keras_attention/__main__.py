"""Runs the command line by `python -m keras_attention`."""

from keras_attention.cli import main

main()
