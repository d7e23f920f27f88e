"""`python -m paraval`."""

from paraval.cli.main import main

if __name__ == "__main__":
    main()
