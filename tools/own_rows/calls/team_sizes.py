"""Sizes of the teams that handshakes make: joining sets."""

from own_problems import TRAIN, CallProblem, Wrong, crashes


def private(random):
    yield [1, []]
    yield [3, []]
    yield [2, [[1, 1]]]
    yield [4, [[0, 1], [1, 0], [0, 1]]]
    yield [4, [[0, 1], [2, 3], [1, 2]]]
    yield [6, [[5, 4], [3, 4], [3, 5], [0, 1]]]
    yield [5, [[4, 3], [3, 2], [2, 1], [1, 0]]]
    for people, pairs in ((8, 5), (20, 14), (200, 150)):
        yield [people, [[random.randrange(people), random.randrange(people)] for _ in range(pairs)]]
    yield [1500, [[at + 1, at] for at in reversed(range(1499))]]


PROBLEM = CallProblem(
    number=111,
    title="Team Sizes",
    split=TRAIN,
    level=2,
    method=True,
    signature="teamSizes(n: int, handshakes: List[List[int]]) -> List[int]",
    statement="""\
There are `n` people, numbered from 0 to n - 1. Each item `[a, b]` of `handshakes` says that a and b shook hands (a \
may be equal to b, which means nothing). Two people are in the same team if there is a chain of handshakes from one \
to the other. Return the sizes of all teams, from the largest to the smallest. Somebody without handshakes is a team \
of one. n is at most 2000, and there are at most 2000 handshakes.""",
    public=(([5, [[0, 1], [3, 4]]], [2, 2, 1]), ([4, [[0, 2], [2, 3]]], [3, 1])),
    private=private,
    golden=(
        """\
class Solution:
    def teamSizes(self, n: int, handshakes: List[List[int]]) -> List[int]:
        near = [[] for _ in range(n)]
        for a, b in handshakes:
            near[a].append(b)
            near[b].append(a)
        seen, sizes = [False] * n, []
        for first in range(n):
            size, waiting = 0, [first]
            while waiting:
                person = waiting.pop()
                if not seen[person]:
                    seen[person] = True
                    size += 1
                    waiting += near[person]
            if size:
                sizes.append(size)
        return sorted(sizes, reverse=True)
""",
        """\
class Solution:
    def teamSizes(self, n: int, handshakes: List[List[int]]) -> List[int]:
        team = list(range(n))
        def head(x):
            while team[x] != x:
                team[x] = team[team[x]]
                x = team[x]
            return x
        for a, b in handshakes:
            team[head(a)] = head(b)
        return sorted(Counter(head(x) for x in range(n)).values(), reverse=True)
""",
    ),
    wrong=(
        Wrong(
            why="edge case: people without handshakes are forgotten",
            program="""\
class Solution:
    def teamSizes(self, n: int, handshakes: List[List[int]]) -> List[int]:
        teams = []
        for pair in handshakes:
            joined = set(pair)
            teams = [t for t in teams if not (t & joined and [joined := joined | t])] + [joined]
        return sorted(map(len, teams), reverse=True) + [1] * (n - sum(map(len, teams)) > 0)
""",
        ),
        Wrong(
            why="one step up instead of to the head of the team",
            program="""\
class Solution:
    def teamSizes(self, n: int, handshakes: List[List[int]]) -> List[int]:
        team = list(range(n))
        for a, b in handshakes:
            team[b] = team[a]
        return sorted(Counter(team).values(), reverse=True)
""",
        ),
        Wrong(
            why="wrong order: from the smallest",
            program="""\
class Solution:
    def teamSizes(self, n: int, handshakes: List[List[int]]) -> List[int]:
        team = list(range(n))
        for a, b in handshakes:
            team = [team[a] if t == team[b] else t for t in team]
        return sorted(Counter(team).values())
""",
        ),
        crashes(
            "people who are in one team already",
            """\
class Solution:
    def teamSizes(self, n: int, handshakes: List[List[int]]) -> List[int]:
        team = {}
        def head(x):
            return head(team[x]) if x in team else x
        for a, b in handshakes:
            team[head(a)] = head(b)
        return sorted(Counter(head(x) for x in range(n)).values(), reverse=True)
""",
        ),
    ),
)
