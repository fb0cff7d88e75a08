"""Arguments of a job that somebody runs already come in, a scenario leaves.

So that people can ask about that job: what would it take on other nodes, is another plan faster?
"""

from parsim.frameworks.reading.read_config import read_config

__all__ = ["read_config"]
