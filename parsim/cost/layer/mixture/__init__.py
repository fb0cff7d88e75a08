"""Seconds of a layer's experts: routing, moving tokens to their experts and back, grouped products.

A record of experts and a table of plans enter, kernels and exchanges leave.

    rank's tokens  -> router -> copies, k a token -> all-to-all -> sorted by expert -> fc1, act, fc2
    rank's tokens <- weighted sum <- copies <- all-to-all <- in the order of their ranks <-'

T tokens of a rank (s b / (cp tp)), k experts a token, E experts on ep ranks, each split over etp.
A rank works on R = T k etp rows, R ep / E of them for each of its E / ep experts, if tokens spread
evenly; the stack's `expert_imbalance` says how many more the busiest rank has, for which all wait.

Source: GShard (arXiv:2006.16668), Megatron-Core's token dispatchers, MegaBlocks (arXiv:2211.15841).
"""
