"""Sparse attention token by token: softmax(QKᵀ / √K) V over the keys j that a query i sees.

With blocks of s tokens, b(i) = i div s; on a grid of m columns, row = i div m, col = i mod m; all 0-based.

| name | i sees j (causal: and j ≤ i) | source |
| --- | --- | --- |
| sparse_fixed | b(j) = b(i), or j mod s ≥ s - c | Child et al. 2019, arXiv 1904.10509 |
| axial | row or col the same | Ho et al. 2019, arXiv 1912.12180 |
| logsparse | itself; of every dyadic block beside one of its own the nearest token | Ren et al. 2021 |
| logsparse_powers | itself and i ± 2^t for t = 0, 1, … | Li et al. 2019, arXiv 1907.00235 |
| longformer | |i - j| ≤ w D with i - j a multiple of D, or j < g | Beltagy et al. 2020, arXiv 2004.05150 |
| routing | the same piece of the same cluster, or the one before | Roy et al. 2021, arXiv 2003.05997 |

Causal logsparse is what Combiner's paper (arXiv 2107.05768) has as {i} and the suffix sums of the bits of i -
1: with 0-based i these are the last tokens of the dyadic blocks that tile what is before i. Its counterpart
without causality is defined there for summaries only, through all blocks' siblings; here a sibling stands
with its nearest token. `logsparse_powers` is the other reading of the name, and another graph.

Their cost is that of the keys seen: no mask of all pairs is ever made.
"""
