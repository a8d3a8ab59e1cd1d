"""Names of ATen ops by what they are, for every table of rules."""

from __future__ import annotations

LINEAR = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _fft_c2c _fft_c2r _fft_r2c _unsafe_index
    _unsafe_index_put _unsafe_view _upsample_bicubic2d_aa _upsample_bilinear2d_aa _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d add as_strided_scatter avg_pool1d avg_pool2d avg_pool3d bernoulli
    cat channel_shuffle clone col2im constant_pad_nd cumsum diag_embed diagonal_copy diagonal_scatter embedding
    flip gather im2col index index_add index_copy index_put index_reduce index_select lift_fresh masked_scatter
    masked_select mean native_dropout neg pixel_shuffle pixel_unshuffle reflection_pad1d
    reflection_pad2d reflection_pad3d repeat replication_pad1d replication_pad2d replication_pad3d roll rot90 rsub scatter
    scatter_add select_scatter slice_scatter squeeze_copy stack sub sum take trace tril triu unfold_copy unsafe_chunk unsafe_split unsafe_split_with_sizes
    upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d
    upsample_trilinear3d view_copy
"""
"""Linear, up to a constant, in all tensors that can depend on the points, other than indices."""

BILINEAR = """
    _convolution _trilinear addbmm addcmul addmm addmv addr baddbmm bilinear bmm convolution dot einsum lerp linalg_cross
    linear matmul mkldnn_convolution mm mul mv outer vdot
"""
"""Polynomials of degree two at most."""

INDEXED = frozenset(
    f"aten::{name}"
    for name in (
        "_unsafe_index _unsafe_index_put embedding gather index index_add index_copy index_put index_select scatter "
        "scatter_add take"
    ).split()
)
"""Ops with indices: what they do when an index depends on the points has no rule."""

ELEMENTWISE = "_to_copy hardshrink hardsigmoid hardswish hardtanh isinf isnan leaky_relu log_sigmoid_forward relu6 softshrink threshold"
"""Elementwise ops that PyTorch does not tag as such."""

SMOOTH = """
    _cdist_forward _linalg_det _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd _pdist_forward cumprod
    linalg_cholesky_ex linalg_inv_ex linalg_lu linalg_matrix_exp linalg_qr logcumsumexp prod
"""
"""Smooth functions of whole rows, without a closed form of the change."""

CHOICES = """
    adaptive_max_pool2d adaptive_max_pool3d amax amin cummax cummin fmax fmin fractional_max_pool2d kthvalue max
    max_pool2d_with_indices max_pool3d_with_indices maximum median min minimum mode nanmedian sort topk where
"""
"""Results that are elements of what came in."""
