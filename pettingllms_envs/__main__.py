"""`python -m pettingllms_envs`, as `pettingllms`."""

import sys

from pettingllms_envs.cli import main


if __name__ == "__main__":
    sys.exit(main())
