"""`python -m diptych`."""

from diptych.cli.main import main

main()
