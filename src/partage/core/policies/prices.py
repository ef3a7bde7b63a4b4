"""Prices: what a piece of a card is worth, given what people ask for.

If the requests of a mix had to be packed on the fewest cards, each size would have a price: the
dual of that packing problem (cutting stock). Sizes that fill a card only alone (81 %) cost a whole
card, sizes that go in pairs cost half of one, small change costs next to nothing, because it fits
into the rests that the others leave. The value of a free piece is then the dearest set of requests
that it could still take.

The problem is solved by column generation: a small simplex over the patterns found so far, and a
knapsack that looks for a pattern worth more than a card at the present prices. Sizes are whole
percent, so the knapsack has a hundred cells. It takes milliseconds (docs/performance.md), and is
done off the path of a decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

CELLS = 100  # a card in whole percent
_EPSILON = 1e-9
_MOST_PIVOTS = 400
_WASTE = -1

Values = tuple[float, ...]  # index: free percent, 0 to 100; value: in cards


def proportional() -> Values:
    """Values when nothing is known: half a card is worth half a card."""
    return tuple(cell / CELLS for cell in range(CELLS + 1))


def values(mix: Mapping[int, float]) -> Values:
    """The value of each free piece of a card, for a mix of sizes (percent) and their counts."""
    sizes = sorted(size for size, count in mix.items() if count > 0)
    if not sizes:
        return proportional()
    duals = _Packing(sizes, [mix[size] for size in sizes]).prices()
    worth = _fill(sizes, duals)[0]
    # A card is worth one card; it would be more if the pivots did not suffice.
    return tuple(value / max(1.0, worth[CELLS]) for value in worth)


class _Packing:
    """The packing problem: fewest cards for all requests, over the patterns known so far.

    ``basis[i]`` is the pattern that stands in row i of the simplex, ``inverse`` the inverse of the
    matrix of those patterns, ``amounts`` how often each is used. A negative unit column stands for
    packing more of a size than was asked, which keeps prices from becoming negative.
    """

    def __init__(self, sizes: Sequence[int], counts: Sequence[float]) -> None:
        self.sizes = sizes
        fits = [CELLS // size for size in sizes]
        rows = range(len(sizes))
        self.duals = [1 / fit for fit in fits]
        self.inverse = [[1 / fits[i] if i == j else 0.0 for j in rows] for i in rows]
        self.amounts = [count / fit for count, fit in zip(counts, fits, strict=True)]

    def prices(self) -> list[float]:
        """The price of each size, once no pattern is worth more than the card it fills."""
        for _ in range(_MOST_PIVOTS):
            column, cost = self._entering(self.duals)
            if column is None:
                break
            self._pivot(column, cost)
        return [max(0.0, price) for price in self.duals]

    def _entering(self, prices: list[float]) -> tuple[list[float] | None, float]:
        cheapest = min(range(len(prices)), key=prices.__getitem__)
        if prices[cheapest] < -_EPSILON:
            return [-1.0 if j == cheapest else 0.0 for j in range(len(prices))], 0.0
        worth, choice = _fill(self.sizes, prices)
        if worth[CELLS] <= 1 + _EPSILON:
            return None, 0.0
        pattern, left = [0.0] * len(prices), CELLS
        while left > 0:
            which = choice[left]
            if which == _WASTE:
                left -= 1
            else:
                pattern[which] += 1
                left -= self.sizes[which]
        return pattern, 1.0

    def _pivot(self, column: list[float], cost: float) -> None:
        rows = range(len(self.sizes))
        used = [j for j in rows if column[j]]
        step = [sum(row[j] * column[j] for j in used) for row in self.inverse]
        leaving = min(
            (i for i in rows if step[i] > _EPSILON), key=lambda i: self.amounts[i] / step[i]
        )
        pivot_row = [entry / step[leaving] for entry in self.inverse[leaving]]
        amount = self.amounts[leaving] / step[leaving]
        for i in rows:
            if i != leaving and step[i]:
                factor = step[i]
                row = self.inverse[i]
                self.inverse[i] = [a - factor * b for a, b in zip(row, pivot_row, strict=True)]
                self.amounts[i] = max(0.0, self.amounts[i] - factor * amount)
        self.inverse[leaving] = pivot_row
        self.amounts[leaving] = amount
        gain = cost - sum(self.duals[j] * column[j] for j in used)
        self.duals = [dual + gain * b for dual, b in zip(self.duals, pivot_row, strict=True)]


def _fill(sizes: Sequence[int], prices: Sequence[float]) -> tuple[Values, list[int]]:
    """The dearest fill of each piece, and which request to take out of it first."""
    worth = [0.0] * (CELLS + 1)
    choice = [_WASTE] * (CELLS + 1)
    priced = [(size, price, i) for i, (size, price) in enumerate(zip(sizes, prices, strict=True))]
    priced = [entry for entry in priced if entry[1] > 0]
    for cell in range(1, CELLS + 1):
        best, which = worth[cell - 1], _WASTE
        for size, price, i in priced:
            if size > cell:
                break
            value = worth[cell - size] + price
            if value > best + _EPSILON:
                best, which = value, i
        worth[cell], choice[cell] = best, which
    return tuple(worth), choice
