"""Every k-th road is free: shortest ways over places and counts."""

from own_problems import TEST, StdinProblem, Wrong, lines


def private(random):
    yield lines([1, 0, 2])
    yield lines([2, 0, 3])
    yield lines([2, 1, 1], [1, 2, 50])
    yield lines([2, 1, 2], [2, 1, 50])
    yield lines([4, 4, 2], [1, 2, 5], [2, 4, 100], [1, 3, 1], [3, 4, 98])
    yield lines([3, 3, 2], [1, 2, 1], [2, 3, 100], [1, 3, 60])
    yield lines([5, 5, 3], [1, 2, 1], [2, 3, 1], [3, 5, 40], [1, 4, 10], [4, 5, 10])
    yield lines([3, 2, 4], [1, 2, 7], [1, 2, 3])
    yield lines([5, 5, 2], [1, 2, 3], [2, 3, 3], [3, 4, 9], [1, 3, 4], [4, 5, 2])
    for places, roads, k in ((8, 12, 2), (20, 40, 3), (60, 150, 4), (300, 700, 5)):
        rows = [[*random.sample(range(1, places + 1), 2), random.randint(1, 1000)] for _ in range(roads)]
        yield lines([places, roads, k], *rows)


PROBLEM = StdinProblem(
    number=23,
    title="Every k-th Road Is Free",
    split=TEST,
    level=3,
    statement="""\
In a country with n towns and m roads every road can be used in both directions and has a toll. On each journey the \
k-th, the 2k-th, the 3k-th road and so on that a traveller uses are free; each of the others costs its toll. Using a \
road again counts, and costs, again. What does the cheapest journey from town 1 to town n cost?

Input
The first line has n, m and k (1 <= n <= 300, 0 <= m <= 1000, 1 <= k <= 5). Each of the next m lines has two \
different towns u and v and the toll of the road between them (1 <= toll <= 1000).

Output
One integer: the cost, or -1 if no journey leads from town 1 to town n.""",
    public=(
        (lines([3, 2, 2], [1, 2, 4], [2, 3, 9]), "4\n"),
        (lines([4, 3, 3], [1, 2, 2], [2, 3, 2], [3, 4, 2]), "4\n"),
    ),
    private=private,
    golden=(
        """\
import heapq
n, m, k = map(int, input().split())
roads = [[] for _ in range(n + 1)]
for _ in range(m):
    u, v, toll = map(int, input().split())
    roads[u].append((v, toll))
    roads[v].append((u, toll))
best = {}
waiting = [(0, 1, 0)]
while waiting:
    cost, town, used = heapq.heappop(waiting)
    if (town, used) in best:
        continue
    best[town, used] = cost
    for other, toll in roads[town]:
        now = (used + 1) % k
        heapq.heappush(waiting, (cost + (toll if now else 0), other, now))
print(min((best[n, used] for used in range(k) if (n, used) in best), default=-1))
""",
        """\
n, m, k = map(int, input().split())
roads = [tuple(map(int, input().split())) for _ in range(m)]
cost = {(1, 0): 0}
changed = True
while changed:
    changed = False
    for a, b, toll in roads:
        for u, v in ((a, b), (b, a)):
            for used in range(k):
                if (u, used) in cost:
                    now = (used + 1) % k
                    new = cost[u, used] + (toll if now else 0)
                    if new < cost.get((v, now), 10**9):
                        cost[v, now] = new
                        changed = True
print(min((cost[n, used] for used in range(k) if (n, used) in cost), default=-1))
""",
    ),
    wrong=(
        Wrong(
            why="one best cost for each town, whatever the count",
            program="""\
import heapq
n, m, k = map(int, input().split())
g = [[] for _ in range(n + 1)]
for _ in range(m):
    u, v, c = map(int, input().split())
    g[u].append((v, c))
    g[v].append((u, c))
seen, heap = set(), [(0, 1, 0)]
while heap:
    d, u, used = heapq.heappop(heap)
    if u == n:
        print(d)
        break
    if u in seen:
        continue
    seen.add(u)
    for v, c in g[u]:
        heapq.heappush(heap, (d + (c if (used + 1) % k else 0), v, used + 1))
else:
    print(-1)
""",
        ),
        Wrong(
            why="off by one: the first road is free",
            program="""\
import heapq
n, m, k = map(int, input().split())
g = [[] for _ in range(n + 1)]
for _ in range(m):
    u, v, c = map(int, input().split())
    g[u].append((v, c))
    g[v].append((u, c))
seen, heap = set(), [(0, 1, 0)]
while heap:
    d, u, used = heapq.heappop(heap)
    if u == n:
        print(d)
        break
    if (u, used) in seen:
        continue
    seen.add((u, used))
    for v, c in g[u]:
        heapq.heappush(heap, (d + (c if used else 0), v, (used + 1) % k))
else:
    print(-1)
""",
        ),
        Wrong(
            why="roads in one direction only",
            program="""\
import heapq
n, m, k = map(int, input().split())
g = [[] for _ in range(n + 1)]
for _ in range(m):
    u, v, c = map(int, input().split())
    g[u].append((v, c))
seen, heap = set(), [(0, 1, 0)]
while heap:
    d, u, used = heapq.heappop(heap)
    if u == n:
        print(d)
        break
    if (u, used) in seen:
        continue
    seen.add((u, used))
    for v, c in g[u]:
        heapq.heappush(heap, (d + (c if (used + 1) % k else 0), v, (used + 1) % k))
else:
    print(-1)
""",
        ),
        Wrong(
            why="edge case: towns that cannot be reached",
            program="""\
n, m, k = map(int, input().split())
edges = [tuple(map(int, input().split())) for _ in range(m)]
INF = 10**9
dist = [[INF] * k for _ in range(n + 1)]
dist[1][0] = 0
changed = True
while changed:
    changed = False
    for a, b, c in edges:
        for u, v in ((a, b), (b, a)):
            for used in range(k):
                now = (used + 1) % k
                cost = dist[u][used] + (c if now else 0)
                if cost < dist[v][now]:
                    dist[v][now] = cost
                    changed = True
print(min(dist[n]))
""",
        ),
    ),
)
