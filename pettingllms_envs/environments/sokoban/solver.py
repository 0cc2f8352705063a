"""Sokoban's search: A* for optimal solutions, in pushes or in moves.

It goes through the positions in which a box was just pushed. The bound (`bound`) is admissible and consistent:
a push changes the price of one box, by at most one, and takes the player to no other side of any other box. So the
first solution taken from the queue is optimal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pettingllms_envs.core import check_choice
from pettingllms_envs.environments.sokoban import bound
from pettingllms_envs.replies.moves import LETTERS


Node = tuple[int, int]  # the boxes, and as a set of one the player's cell, or of those it can reach the first


class Solution(NamedTuple):
    """A solution that is optimal in what was asked for.

    Args:
        moves: All moves, such as `"RRD"`; steps and pushes alike.
        nodes: Positions that the search took up.
    """

    moves: str
    pushes: int
    nodes: int


class SearchLimitError(Exception):
    """The search gave up at the limit it was given: nothing is known about the position."""


def solve(position: bound.Position, by: str = "moves", *, max_nodes: int | None = None) -> Solution | None:
    """An optimal solution, the same every time, or None if there is none.

    Args:
        by: What shall be as few as possible: `"moves"`, or `"pushes"` (then the walks between are shortest, no more).
        max_nodes: Give up after that many positions; None for no limit.

    Raises:
        SearchLimitError: The search gave up.
    """
    check_choice("by", by, ("moves", "pushes"))
    if bound.lower_bound(position) == bound.DEAD:
        return None
    found, nodes = _search(position, by == "moves", max_nodes)
    return None if found is None else _written(position, found, nodes)


def _search(
    position: bound.Position, by_moves: bool, max_nodes: int | None
) -> tuple[list[tuple[int, int]] | None, int]:
    """The pushes of an optimal solution, each as the player's cell before it and the step; and the nodes taken up."""
    width, walls, goals, boxes, player = position
    room, start = bound.room_of(width, walls, goals), (boxes, 1 << player)
    floor = room.floor
    regions: dict[int, list[int] | None] = {}  # per placement of boxes where the player can be, or None
    costs, came = {start: 0}, dict[Node, tuple[Node, int, int]]()
    # Per sum of cost and bound the nodes, last in, first out, each with the cells that the player can reach if known.
    queue: list[list[tuple[int, Node, int]]] = [[] for _ in range(bound.bound_of(room, *start))]
    queue.append([(0, start, 0)])
    nodes = total = 0
    while total < len(queue):
        if not queue[total]:
            total += 1
            continue
        cost, node, reach = queue[total].pop()
        boxes, at = node
        if costs[node] < cost:
            continue
        if boxes == goals:
            return _path(came, node), nodes
        if nodes == max_nodes:
            raise SearchLimitError(f"no solution within {nodes} nodes")
        nodes += 1
        if by_moves:
            layers = _layers(floor & ~boxes, at, width)
        else:
            layers = (reach or bound.region(floor & ~boxes, at, width),)
        for walk, box, step, after in _pushes(room, boxes, layers):
            if after not in regions:
                regions[after] = None if bound.frozen(walls, room.dead_cells, after, width) & ~goals else []
            known = regions[after]
            if known is None:
                continue
            there = after, box
            if not by_moves:
                reach = next((cells for cells in known if cells & box), 0)
                if not reach:
                    reach = bound.region(floor & ~after, box, width)
                    known.append(reach)
                there = after, reach & -reach
            spent = cost + walk + 1
            if costs.get(there, bound.FAR) <= spent:
                continue
            whole = spent + bound.bound_of(room, after, box)
            if whole >= bound.FAR:
                continue
            costs[there] = spent
            came[there] = node, box.bit_length() - 1 - step, step
            queue += [[] for _ in range(whole + 1 - len(queue))]
            queue[whole].append((spent, there, reach))
    return None, nodes


def _pushes(room: bound.Room, boxes: int, layers: Sequence[int]) -> list[tuple[int, int, int, int]]:
    """The pushes from the cells of each layer: the layer's number, the box, the step, and the boxes after it."""
    onto, found = room.live & ~boxes, []
    for step in bound.steps_of(room.width):
        pushable = boxes & _shift(onto, -step)
        if pushable:
            for walk, cells in enumerate(layers):
                pushed = pushable & _shift(cells, step)
                while pushed:
                    box = pushed & -pushed
                    pushed ^= box
                    found.append((walk, box, step, boxes ^ box ^ _shift(box, step)))
    return found


def _shift(mask: int, step: int) -> int:
    return mask << step if step > 0 else mask >> -step


def _layers(free: int, start: int, width: int) -> tuple[int, ...]:
    """The cells of `free` by their distance from the set `start`, which comes first."""
    layers, seen = [start], start
    while True:
        start = (start << 1 | start >> 1 | start << width | start >> width) & free & ~seen
        if not start:
            return tuple(layers)
        layers.append(start)
        seen |= start


def _path(came: Mapping[Node, tuple[Node, int, int]], node: Node) -> list[tuple[int, int]]:
    """The pushes that led to a node, each as the player's cell before it and the step."""
    path = []
    while node in came:
        node, cell, step = came[node]
        path.append((cell, step))
    return path[::-1]


def _written(position: bound.Position, pushes: list[tuple[int, int]], nodes: int) -> Solution:
    """The pushes with shortest walks between them."""
    width, walls, _, boxes, player = position
    floor = ~walls & (1 << walls.bit_length()) - 1
    moves = ""
    for cell, step in pushes:
        walk = _walk(_layers(floor & ~boxes, 1 << cell, width), player, width)
        moves += walk + LETTERS[bound.steps_of(width).index(step)]
        player = cell + step
        boxes ^= 1 << player | 1 << player + step
    return Solution(moves, len(pushes), nodes)


def _walk(layers: Sequence[int], player: int, width: int) -> str:
    """A shortest walk to the cell that the layers begin with."""
    moves = ""
    far = next(number for number, cells in enumerate(layers) if cells >> player & 1)
    for cells in layers[:far][::-1]:
        letter, step = next(
            way for way in zip(LETTERS, bound.steps_of(width), strict=True) if cells >> player + way[1] & 1
        )
        moves += letter
        player += step
    return moves
