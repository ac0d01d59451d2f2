"""The process `jaxota`, ready for a signal before anything heavy is loaded."""

from jaxota.cli.process import main

if __name__ == "__main__":
    main()
