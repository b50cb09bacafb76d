"""`python -m forewarn`: the same as the command `forewarn`."""

from forewarn.cli import main

if __name__ == "__main__":
    main()
