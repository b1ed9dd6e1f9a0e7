"""`python -m solpi_exporter`: hands over to the command line."""

from solpi_exporter.cli import main

if __name__ == "__main__":
    main()
