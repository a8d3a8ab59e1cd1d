"""Relevance that is passed back op by op: DeepLIFT and layer-wise relevance propagation on any PyTorch function.

`tape` records which ATen ops a function runs, `expand` replaces large ops by smaller ones, `walk` goes back over the tape
with a table of rules (`table`, one entry an op), of which `deeplift` and `lrp` are two. Nothing looks at modules.
"""
