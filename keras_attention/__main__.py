"""Runs the command line by `python -m keras_attention`."""

from keras_attention.cli import main

if __name__ == "__main__":
    main()
