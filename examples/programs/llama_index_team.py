"""The team of `llama_index_script.py`, a command line, as an environment.

pettingllms bench examples/programs/llama_index_team.py:team --model MODEL --base-url URL
"""

import sys
from pathlib import Path

from pettingllms_envs.programs import program


SCRIPT = Path(__file__).with_name("llama_index_script.py")

team = program([sys.executable, str(SCRIPT)], agents=("writer", "critic"))
