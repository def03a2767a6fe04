"""Combiner: every token attends to every other, to near ones directly and to far ones through summaries.

Ren et al. 2021, arXiv 2107.05768. For each query i the keys that it may see (all, or those up to i if causal)
are parted into Ω⁰ and spans Ω¹ … Ωⁿ. With e(a, b) = exp(a · b / √K) and, for each span, one key and one query
pooled of its tokens', k_Ω and q_Ω,

    Z_i = Σ_{j ∈ Ω⁰} e(q_i, k_j) + Σ_r e(q_i, k_Ωr)
    A_ij = e(q_i, k_j) / Z_i                                               for j in Ω⁰, directly
    A_ij = e(q_i, k_Ωr) / Z_i · e(q_Ωr, k_j) / Σ_{l ∈ Ωr} e(q_Ωr, k_l)     for j in Ωr, through its summary

so each row of A sums to 1 and no entry is 0: this is the effective matrix. It is never made. A query's scores
are those of its direct keys and of its spans' keys, in one softmax, and a span's value is its own tokens'
attention to themselves under q_Ω. A span without tokens has no part in it.

With tokens in blocks of s, b(i) = i div s; or on a grid of m columns, row = i div m, col = i mod m:

| plan | Ω⁰ (causal: up to i) | spans | causal spans |
| --- | --- | --- | --- |
| fixed | own block | other blocks | blocks before |
| logsparse | i, i xor 1 | the other half of every dyadic block that i is in | those to the left |
| axial vertical | own row and column | other columns without own row | their rows before |
| axial horizontal | own row and column | other rows without own column | rows before, without own column |
| axial rowmajor | own row | other rows, under the query of their token in own column | rows before |
| routing | own cluster | other clusters | other clusters up to i |

Rowmajor's summaries differ by column through q_Ω, which is the query of the span's token in the own column
(pooled as elsewhere in a last row that has none); k_Ω is pooled. Routing's clusters are those of the nearest
of learnt directions; one of more than `span` tokens is cut, in the order of its tokens, so that the cost
holds whatever the clusters are. A mixture is the mean of two plans' outputs.

Pooling is the maximum or mean of each component, of the tokens' own queries and keys or, with DeepSets, of
relu(W x), W being learnt, one for queries and one for keys, the same for all heads of a layer. Dropout acts
on the joint softmax.
"""
