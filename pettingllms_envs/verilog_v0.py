"""Write a module in Verilog, which is judged by a proof that it does what is asked for.

With `data` VerilogEval or RTLLM.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.verilog.designers import WORKFLOWS
from pettingllms_envs.environments.verilog.rules import Verilog


raw_env, env, parallel_env = assemble(Verilog, __name__, WORKFLOWS)
