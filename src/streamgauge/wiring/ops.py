"""What each tensor operation does, as far as the reader needs to know: layout, scale, heavy, mixing, random."""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Same elements, another layout or dtype.
SAME = _words(
    "view reshape _unsafe_view _reshape_alias _reshape_copy view_copy permute transpose t unsqueeze squeeze flatten "
    "unflatten clone contiguous detach alias lift_fresh lift _to_copy to type_as copy view_as_real view_as_complex "
    "expand expand_as _conj conj resolve_conj positive alias_copy movedim swapaxes _autocast_to_full_precision "
    "_autocast_to_reduced_precision wait_tensor _fw_primal"
)
# Part of the elements, more of them, or another order.
PART = _words(
    "slice select narrow split split_with_sizes unbind chunk index index_select gather roll flip cat stack hstack "
    "constant_pad_nd pad reflection_pad1d replication_pad1d repeat repeat_interleave as_strided diagonal unfold "
    "im2col col2im pixel_shuffle pixel_unshuffle merge scatter slice_scatter select_scatter index_put index_copy "
    "masked_select take_along_dim tile squeeze_copy unsqueeze_copy split_copy nested_tensor_from_mask "
    "_nested_from_padded nested_to_padded channel_shuffle rot90 masked_scatter index_add scatter_add "
    "scatter_reduce"
)
# Values that may be masked or dropped, element by element.
MASK = _words(
    "dropout native_dropout feature_dropout alpha_dropout masked_fill where nan_to_num clamp clamp_min clamp_max "
    "minimum maximum _fused_dropout"
)
MATMUL = _words(
    "mm addmm bmm baddbmm matmul linear mv addmv dot vdot inner addbmm ger outer _addmm_activation einsum tensordot "
    "mkldnn_linear _mkl_linear _scaled_mm _grouped_mm _scaled_grouped_mm _weight_int8pack_mm _weight_int4pack_mm "
    "_int_mm chain_matmul bilinear _trilinear sparse_mm _sparse_mm"
)
CONV = _words(
    "convolution _convolution conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "mkldnn_convolution cudnn_convolution convolution_overrideable thnn_conv2d _slow_conv2d_forward slow_conv3d "
    "_conv_depthwise2d conv_depthwise3d"
)
ATTENTION = _words(
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_fused_attention_overrideable scaled_dot_product_attention _flash_attention_forward "
    "_efficient_attention_forward _native_multi_head_attention _scaled_dot_product_attention_math "
    "_transformer_encoder_layer_fwd flex_attention"
)
MIXING = _words(
    "fft _fft_c2c _fft_r2c _fft_c2r avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool2d_with_indices "
    "adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d _adaptive_avg_pool3d cumsum cumprod logcumsumexp "
    "lstm gru rnn_tanh rnn_relu _thnn_fused_lstm_cell mkldnn_rnn_layer grid_sampler grid_sampler_2d grid_sampler_3d "
    "associative_scan scan selective_scan"
)
HEAVY = MATMUL | CONV | ATTENTION | MIXING
SOFTMAX = _words("_softmax softmax _safe_softmax special_softmax masked_softmax _masked_softmax")
ADD = frozenset({"add", "sub", "rsub"})
MUL = frozenset({"mul", "div", "true_divide", "neg"})
LOOKUP = frozenset({"embedding", "_embedding_bag", "embedding_bag", "index", "index_select", "gather"})
# Make a new value: what stood in the tensor before is gone.
FILL = _words(
    "fill zero uniform normal bernoulli random exponential cauchy log_normal geometric zeros ones empty full "
    "zeros_like ones_like empty_like full_like new_zeros new_ones new_empty new_full rand randn randint rand_like "
    "randn_like empty_strided new_empty_strided empty_permuted arange linspace eye scalar_tensor tril_indices "
    "triu_indices randperm"
)
RANDOM = _words("uniform normal bernoulli exponential rand randn rand_like randn_like")
# Saturating or rectifying: what makes two products in a row more than one.
NONLINEAR = _words(
    "relu gelu silu sigmoid tanh elu leaky_relu hardswish hardtanh hardsigmoid mish softplus erf exp relu6 selu celu "
    "rrelu prelu _prelu_kernel glu pow square threshold log_sigmoid clamp_min abs sin cos"
)
FUSED_NORMS = {
    "native_layer_norm": "layernorm",
    "layer_norm": "layernorm",
    "_fused_rms_norm": "rmsnorm",
    "rms_norm": "rmsnorm",
    "native_batch_norm": "batchnorm",
    "_native_batch_norm_legit": "batchnorm",
    "_native_batch_norm_legit_no_training": "batchnorm",
    "_batch_norm_no_update": "batchnorm",
    "_batch_norm_with_update": "batchnorm",
    "cudnn_batch_norm": "batchnorm",
    "native_group_norm": "groupnorm",
    "group_norm": "groupnorm",
}
