"""Entry point of the command `keras-attention`."""

import sys


def main():
    """Runs the command line, or says which extra it needs."""
    try:
        from keras_attention.commands import app
    except ImportError as error:
        if error.name not in ("rich", "typer"):
            raise
        sys.exit(
            f"The command line needs the package {error.name!r}. "
            'Install it with: pip install "keras_attention[cli]"'
        )
    app()


if __name__ == "__main__":
    main()
