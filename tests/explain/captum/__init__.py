"""Captum's own attribution configurations, and the matrix, on the device; and what is Captum's own fault.

``make test-captum`` runs every configuration in every mode; ``make test`` a few. Environment variables:

    TORUS_CAPTUM         "full": every pair of a configuration and a method; otherwise those of `suite.SAMPLE`
    TORUS_CAPTUM_ONLY    a regular expression: the pairs whose name it is found in
    TORUS_CAPTUM_SHARD   "2/4": the second of four parts, the same ones each time
"""
