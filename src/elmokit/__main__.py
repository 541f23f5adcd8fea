"""`python -m elmokit` is the command `elmo`; torchrun wants a module."""

from elmokit.cli import main

if __name__ == "__main__":
    main()
