"""Changes of a golden query, one at a time, most of which make it wrong. For tests; needs `sqlglot`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import sqlglot
from sqlglot import exp


SWAPS: dict[type[exp.Expression], tuple[type[exp.Expression], ...]] = {
    exp.GT: (exp.GTE, exp.LT),
    exp.GTE: (exp.GT, exp.LT),
    exp.LT: (exp.LTE, exp.GT),
    exp.EQ: (exp.NEQ, exp.GTE),
    exp.NEQ: (exp.EQ, exp.GT),
    exp.And: (exp.Or,),
    exp.Sum: (exp.Avg, exp.Max, exp.Count),
    exp.Avg: (exp.Sum, exp.Max, exp.Min),
    exp.Min: (exp.Max, exp.Avg),
    exp.Max: (exp.Min, exp.Avg),
    exp.Count: (exp.Sum, exp.Max),
}
PARTS = ("where", "having", "group", "order", "limit", "distinct")


def mutants(query: str) -> list[str]:
    """Queries that differ from it in one place, sorted."""
    tree = sqlglot.parse_one(query, read="sqlite")
    found: set[str] = set()
    for index in range(len(list(tree.walk()))):
        for change in _changes(list(tree.walk())[index]):
            copy = tree.copy()
            change(list(copy.walk())[index])
            found.add(copy.sql("sqlite"))
    return sorted(found - {tree.sql("sqlite")})


def _changes(node: Any) -> Iterator[Callable[[Any], object]]:
    """Functions that change a node of that kind in its tree."""
    for other in SWAPS.get(type(node), ()):
        if not (type(node) is exp.Count and isinstance(node.this, exp.Star)):
            yield lambda at, other=other: at.replace(
                other(**{k: v for k, v in at.args.items() if k in other.arg_types})
            )
    if isinstance(node, exp.Literal):
        if node.is_string:
            yield lambda at: at.replace(exp.Literal.string(f"{at.this}x"))
        else:
            yield from (lambda at, by=by: at.replace(exp.Literal.number(float(at.this) + by)) for by in (1, -1))
    if isinstance(node, exp.Join):
        yield lambda at: at.set("side", None if at.side else "LEFT")
        yield lambda at: at.pop()
    if isinstance(node, exp.Select):
        yield from (lambda at, part=part: at.set(part, None) for part in PARTS if node.args.get(part))
        if not node.args.get("distinct"):
            yield lambda at: at.set("distinct", exp.Distinct())
        if len(node.expressions) > 1:
            yield lambda at: at.set("expressions", at.expressions[::-1])
            yield lambda at: at.set("expressions", at.expressions[:1])
        yield lambda at: at.set("limit", exp.Limit(expression=exp.Literal.number(5)))
    if isinstance(node, exp.Ordered):
        yield lambda at: at.set("desc", not at.args.get("desc"))
        yield lambda at: at.parent.set("expressions", [each for each in at.parent.expressions if each is not at])
    if isinstance(node, exp.Group) and len(node.expressions) > 1:
        yield lambda at: at.set("expressions", at.expressions[:1])
    if isinstance(node, exp.Coalesce):
        yield lambda at: at.replace(at.this.copy())
    if isinstance(node, exp.Case):
        yield lambda at: at.replace(at.args["ifs"][0].args["true"].copy())
    if isinstance(node, exp.Not):
        yield lambda at: at.replace(at.this.copy())
    if isinstance(node, exp.Exists):
        yield lambda at: at.replace(exp.Not(this=at.copy()))
    if isinstance(node, exp.Distinct) and isinstance(node.parent, exp.Count):
        yield lambda at: at.replace(at.expressions[0].copy())
    if isinstance(node, exp.And):
        yield lambda at: at.replace(at.left.copy())
        yield lambda at: at.replace(at.right.copy())
