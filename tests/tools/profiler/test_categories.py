"""Every kernel gets the category of what it does, and not of the library it is written with."""

from __future__ import annotations

from tools.profiler.categories import CATEGORIES, category_of

# names as profilers print them, of ROCm, CUDA, Inductor, vLLM and aiter, and of ATen's operations
NAMES = [
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long)", "communication"),
    ("_ZN5aiter24fmha_fwd_hd128_bf16_rtneE", "attention"),
    ("attn_fwd", "attention"),
    ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64>>", "attention"),
    ("fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel)", "attention"),
    ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"),
    ("void ck_tile::kentry<ck_tile::FmhaFwdKernel<...>>", "attention"),
    ("_ZN5aiter18MoeSortingKernelE", "moe and sorting"),
    ("void at::native::(anonymous namespace)::topk::gatherTopK<float, unsigned int, 1>", "moe and sorting"),
    ("aten::topk", "moe and sorting"),
    ("Cijk_Alik_Bljk_BBS_BH_Bias_HAS_SAV_UserArgs_MT256x256x64_MI16x16x1", "gemm"),
    ("nvjet_tst_128x128_64x6_2x1_v_bz_TNT", "gemm"),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute", "gemm"),
    ("triton_tem_fused_addmm_3", "gemm"),
    ("aten::addmm", "gemm"),
    ("mkldnn_linear_pointwise", "gemm"),
    ("void wvSplitK_hf_<__half, 64, 4>", "gemm"),
    ("miopenSp3AsmConv_v30_3_1_gfx9", "convolution"),
    ("aten::convolution", "convolution"),
    ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt256x256x32_wt32x32x8", "convolution"),
    ("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64", "convolution"),
    ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816fprop_optimized_bf16_256x64>", "convolution"),
    ("cutlass_tensorop_f16_s16816wgrad_optimized_f16_128x128_32x5_nhwc_align8", "convolution"),
    ("void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1>", "convolution"),
    ("void ck::kernel_grouped_conv_fwd_xdl_cshuffle<ck::GridwiseGemmMultipleABD_xdl_cshuffle<...>>", "convolution"),
    ("triton_tem_fused_convolution_0", "convolution"),
    ("void conv2d_grouped_direct_kernel<float, float, 1>", "convolution"),
    ("void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, c10::BFloat16>", "convolution"),
    ("ampere_igemm_int8_128x128_ldg4_relu_nn", "gemm"),
    ("triton_poi_fused_convolution_relu_3", "activation and elementwise"),  # what follows one
    ("triton_poi_fused__scaled_dot_product_attention_clone_3", "activation and elementwise"),  # a copy for it
    ("triton_tem_fused_flex_attention_0", "attention"),
    ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1", "attention"),
    ("MIOpenBatchNormFwdInferSpatialEst", "norm"),
    ("aten::miopen_batch_norm", "norm"),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>", "norm"),
    ("triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_0", "norm"),
    ("void aiter::Rmsnorm2dFwd<...>", "norm"),
    ("aten::native_layer_norm", "norm"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>", "softmax and reduction"),
    ("triton_per_fused__softmax_1", "softmax and reduction"),
    ("aten::mean", "softmax and reduction"),
    ("aten::empty_strided", "copy and fill"),
    ("Torch-Compiled Region: 0/0", "compiled code"),
    ("AOTDispatcher Runtime Wrapper Prologue", "compiled code"),
    ("void vllm::dynamic_per_token_scaled_fp8_quant_kernel", "quantization"),
    ("void vllm::reshape_and_cache_flash_kernel", "cache"),
    ("aten::index_put_", "cache"),
    ("Memcpy DtoD (Device -> Device)", "copy and fill"),
    ("__amd_rocclr_fillBufferAligned", "copy and fill"),
    ("aten::copy_", "copy and fill"),
    ("void at::native::elementwise_kernel<128, 4, at::native::direct_copy_kernel_cuda>", "copy and fill"),
    ("void vllm::act_and_mul_kernel<c10::BFloat16, vllm::silu_kernel>", "activation and elementwise"),
    ("triton_poi_fused_mul_silu_2", "activation and elementwise"),
    ("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>", "activation and elementwise"),
    ("aten::mul", "activation and elementwise"),
    ("aten::embedding", "activation and elementwise"),
    ("append_shared_kernel", "other Triton"),
    ("something of which nobody has heard", "unclassified"),
    ("", "unclassified"),
]


def test_a_name_has_the_category_of_what_it_does() -> None:
    assert {name: category_of(name) for name, _ in NAMES} == dict(NAMES)
    assert {category for _, category in NAMES} == set(CATEGORIES)
    assert category_of("<" * 10_000_000 + "gemm") == "unclassified"  # in no time
