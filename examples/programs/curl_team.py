"""The shell script `curl_team.sh` as an environment.

pettingllms bench examples/programs/curl_team.py:team --model MODEL --base-url URL
"""

from pathlib import Path

from pettingllms_envs.programs import program


team = program(["bash", str(Path(__file__).with_name("curl_team.sh"))], agents=("writer", "critic"))
