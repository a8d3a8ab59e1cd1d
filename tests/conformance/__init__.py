"""PyTorch's own operator database run against the device, through PyTorch's device test base.

``make test-conformance`` runs all of it; ``make test`` runs a few ops. Environment variables:

    TORUS_CONFORMANCE          "full": every op and dtype; otherwise the ops of `suite.SAMPLE`
    TORUS_CONFORMANCE_ONLY     a regular expression: the ops whose full name it is found in
    TORUS_CONFORMANCE_SHARD    "2/5": the second of five parts, the same ones each time
    TORUS_CONFORMANCE_SAMPLES  how many inputs of an op and dtype, spread evenly (default 6)
"""
