"""Search for passages and answer questions of several hops, of this package in the manner of HotpotQA.

With `data` HotpotQA, 2WikiMultihopQA or MuSiQue, whose questions have paragraphs of their own, or any questions with a
corpus or a retriever of yours.
"""

from pettingllms_envs.assembly import assemble
from pettingllms_envs.environments.search.rules import Search
from pettingllms_envs.environments.search.searchers import LoneSearcher, SearchTeam


raw_env, env, parallel_env = assemble(Search, __name__, (SearchTeam, LoneSearcher))
