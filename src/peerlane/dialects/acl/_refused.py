"""The calls of the vendor's binding that refuse, and what each answers with: hicann/runtime, ``python/pyACL``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

# One letter for each output: r the code, 0 a number or pointer, s a text, d a dict, l a list, n None.
_OUTPUTS: Mapping[str, Callable[[int], object]] = {
    "r": lambda code: code,
    "0": lambda code: 0,
    "s": lambda code: "",
    "d": lambda code: {},
    "l": lambda code: [],
    "n": lambda code: None,
}
ONLY_THE_CODE = "r"

_NAMES: Mapping[str, Mapping[str, str]] = {
    "acl": {
        "r": """
            set_tensor_storage_format set_tensor_storage_shape set_tensor_format set_tensor_shape
            set_tensor_origin_format set_tensor_origin_shape set_tensor_dynamic_input set_tensor_shape_range
            set_tensor_place_ment set_tensor_const set_tensor_value_range""",
        "0": "get_tensor_desc_address get_tensor_desc_by_index",
        "0r": "trans_tensor_desc_format",
        "nr": "get_tensor_desc_dim_range",
    },
    "acl.rt": {
        "r": """
            destroy_binary launch_kernel kernel_args_init_by_user_mem set_device_sat_mode set_ts_device
            get_overflow_status
            reset_overflow_status set_stream_overflow_switch ctx_set_sys_param_opt set_sys_param_opt
            cmo_async set_device_res_limit reset_device_res_limit set_stream_res_limit reset_stream_res_limit
            use_stream_res_in_current_thread unuse_stream_res_in_current_thread set_group destroy_group_info
            get_all_group_info""",
        "0": "create_binary create_group_info",
        "0r": """
            binary_load_from_data register_cpu_func binary_load
            kernel_args_get_mem_size kernel_args_get_handle_mem_size
            kernel_args_append_place_holder kernel_args_get_place_holder_buffer get_device_sat_mode
            get_stream_overflow_switch get_thread_last_task_id ctx_get_sys_param_opt get_sys_param_opt
            get_device_res_limit get_stream_res_limit get_res_in_current_thread get_op_timeout_interval
            get_op_execute_timeout get_group_count""",
        "00r": "get_function_addr",
        "sr": "get_function_name",
        "lr": "get_group_info_detail",
    },
    "acl.blas": {
        "r": "gemv_ex hgemv s8gemv gemm_ex hgemm s8gemm",
        "0r": """
            create_handle_for_gemv_ex create_handle_for_hgemv create_handle_for_s8gemv create_handle_for_gemm_ex
            create_handle_for_hgemm create_handle_for_s8gemm""",
    },
    "acl.fv": {
        "r": """
            destory_init_para destroy_init_para set_1n_top_num set_nm_top_num init release repo_add repo_del
            destroy_feature_info destroy_repo_range delete modify destroy_query_table destroy_search_input
            destroy_search_result search""",
        "0": """
            create_init_para create_feature_info create_repo_range create_query_table create_search_input
            create_search_result""",
    },
    "acl.mdl": {
        "r": """
            unload execute execute_async execute_v2 destroy_dataset get_desc get_desc_from_file get_desc_from_mem
            destroy_desc set_dynamic_batch_size set_dynamic_hw_size destroy_aipp set_aipp_input_format
            set_aipp_csc_params set_aipp_rbuv_swap_switch set_aipp_ax_swap_switch set_aipp_src_image_size
            set_aipp_crop_params set_aipp_padding_params set_aipp_dtc_pixel_mean set_aipp_dtc_pixel_min
            set_aipp_pixel_var_reci set_aipp_scf_params set_input_aipp set_input_dynamic_dims init_dump finalize_dump
            set_aipp_by_input_index set_dump dump_reg_callback destroy_config_handle set_config_opt
            destroy_exec_config_handle set_exec_config_opt bundle_unload""",
        "0": """
            create_dataset get_dataset_buffer get_dataset_num_buffers get_output_size_by_index get_num_inputs
            get_num_outputs get_input_size_by_index create_desc create_aipp get_input_format get_output_format
            get_input_data_type get_output_data_type create_config_handle create_exec_config_handle
            get_dataset_tensor_desc""",
        "n": """
            get_input_name_by_index get_output_name_by_index get_tensor_real_name get_op_attr dump_unreg_callback""",
        "0r": """
            load_from_file load_from_mem load_from_file_with_mem load_from_mem_with_mem load_with_config
            load_from_file_with_q load_from_mem_with_q add_dataset_buffer get_input_index_by_name
            get_output_index_by_name get_input_dynamic_gear_count set_dataset_tensor_desc get_aipp_data_size
            bundle_load_from_file bundle_load_from_mem bundle_get_model_id bundle_get_model_num""",
        "00r": "query_size query_size_from_mem get_aipp_type",
        "dr": """
            get_input_dims get_input_dims_v2 get_output_dims get_cur_output_dims get_dynamic_batch get_dynamic_hw
            get_input_dims_range""",
        "lr": "get_input_dynamic_dims",
        "nr": "get_first_aipp_info",
        "s0000r": "create_and_get_op_desc",
    },
    "acl.op": {
        "r": """
            set_model_dir load execute execute_with_handle cast set_attr_bool set_attr_int set_attr_float
            set_attr_string set_attr_list_bool set_attr_list_int set_attr_list_float set_attr_list_string
            set_attr_list_list_int start_dump_args stop_dump_args register_compile_func unregister_compile_func
            create_kernel set_kernel_args set_kernel_workspace_sizes update_params execute_v2 infer_shape
            set_max_op_queue_num""",
        "0": "create_attr",
        "n": "destroy_attr destroy_handle",
        "0r": "create_handle_for_cast create_handle set_attr_data_type set_attr_list_data_type",
    },
    "acl.prof": {
        "r": """
            destroy_config init finalize start stop model_subscribe model_un_subscribe model_unsubscribe
            destroy_subscribe_config get_step_timestamp push pop range_stop set_stamp_trace_message mark mark_ex
            set_config""",
        "0": """
            create_config create_subscribe_config get_op_start get_op_end get_op_duration get_model_id
            create_step_info create_stamp""",
        "n": "destroy_step_info destroy_stamp",
        "0r": "get_op_desc_size get_op_num get_op_type_len get_op_name_len range_start",
        "sr": "get_op_type get_op_name",
        "nr": "get_op_type_v2 get_op_name_v2",
    },
    "acl.media": {
        "0": """
            dvpp_create_channel_desc dvpp_get_channel_desc_channel_id dvpp_create_pic_desc dvpp_get_pic_desc_data
            dvpp_get_pic_desc_size dvpp_get_pic_desc_format dvpp_get_pic_desc_width dvpp_get_pic_desc_height
            dvpp_get_pic_desc_width_stride dvpp_get_pic_desc_height_stride dvpp_get_pic_desc_ret_code
            dvpp_create_stream_desc dvpp_get_stream_desc_data dvpp_get_stream_desc_size dvpp_get_stream_desc_format
            dvpp_get_stream_desc_timestamp dvpp_get_stream_desc_ret_code dvpp_get_stream_desc_eos
            dvpp_create_batch_pic_desc dvpp_get_pic_desc dvpp_create_roi_config dvpp_create_resize_config
            dvpp_get_resize_config_interpolation dvpp_create_jpege_config dvpp_get_jpege_config_level
            vdec_create_channel_desc vdec_get_channel_desc_channel_id vdec_get_channel_desc_thread_id
            vdec_get_channel_desc_entype vdec_get_channel_desc_out_pic_format vdec_get_channel_desc_out_pic_width
            vdec_get_channel_desc_out_pic_height vdec_get_channel_desc_ref_frame_num vdec_create_frame_config
            vdec_get_channel_desc_out_mode vdec_get_channel_desc_bit_depth venc_create_channel_desc
            venc_get_channel_desc_channel_id venc_get_channel_desc_thread_id venc_get_channel_desc_entype
            venc_get_channel_desc_pic_format venc_get_channel_desc_pic_width venc_get_channel_desc_pic_height
            venc_get_channel_desc_key_frame_interval venc_create_frame_config venc_get_frame_config_force_i_frame
            venc_get_frame_config_eos venc_get_channel_desc_buf_addr venc_get_channel_desc_buf_size
            venc_get_channel_desc_max_bit_rate venc_get_channel_desc_rc_mode venc_get_channel_desc_src_rate
            dvpp_create_border_config dvpp_get_border_config_value dvpp_get_border_config_border_type
            dvpp_get_border_config_top dvpp_get_border_config_bottom dvpp_get_border_config_left
            dvpp_get_border_config_right dvpp_create_hist dvpp_get_hist_dims dvpp_get_hist_ret_code
            dvpp_create_lut_map dvpp_get_lut_map_dims""",
        "n": "vdec_get_channel_desc_callback venc_get_channel_desc_callback",
        "0r": """
            dvpp_set_channel_desc_param dvpp_vpc_batch_crop_async dvpp_jpeg_predict_dec_size
            dvpp_jpeg_predict_enc_size dvpp_png_predict_dec_size vdec_set_channel_desc_param
            venc_get_channel_desc_param""",
        "00r": """
            dvpp_get_channel_desc_param vdec_get_channel_desc_param dvpp_get_hist_data dvpp_get_lut_map_data""",
        "000r": "dvpp_jpeg_get_image_info dvpp_png_get_image_info",
        "0000r": "dvpp_jpeg_get_image_info_v2",
    },
    "acl.himpi": {
        "0": "vdec_get_pic_buf_size vdec_get_tmv_buf_size",
        "0r": """
            dvpp_malloc sys_create_epoll vpc_resize vpc_crop vpc_crop_resize vpc_crop_resize_paste vpc_convert_color
            vpc_convert_color_v2 vpc_convert_color_to_yuv420 vpc_copy_make_border vpc_pyrdown vpc_calc_hist_v2
            vpc_equalize_hist vpc_sys_create_chn vpc_crop_resize_make_border vpc_batch_crop_resize_paste
            vpc_batch_crop_resize_make_border vpc_crop_resize_resize_paste vpc_dilate vpc_draw_cover vpc_draw_line
            vpc_draw_mosaic vpc_draw_osd vpc_blur vpc_gaussian_blur vpc_erode vpc_filter2d vpc_flip vpc_lut_remap
            vpc_median_blur vpc_rotate vpc_warp_affine vpc_get_lut_mem_size venc_get_jpege_predicted_size
            venc_get_scene_mode venc_get_qpmap_stride venc_get_qpmap_size vdec_get_display_mode""",
        "dr": """
            sys_get_image_align_info vdec_get_chn_attr vdec_query_status vdec_get_chn_param vdec_get_protocol_param
            dvpp_get_image_info vdec_get_jpegd_output_info venc_query_status venc_get_stream venc_get_mod_param
            venc_get_jpeg_param venc_get_chn_param venc_get_chn_attr venc_get_rc_param venc_get_jpeg_huffman_param
            venc_get_cu_pred venc_get_h264_vui venc_get_h265_vui venc_get_intra_refresh venc_get_ref_param
            venc_get_roi_attr venc_get_slice_split venc_get_streamcopy_param vpc_get_affine_lut
            vpc_get_affine_transform vpc_get_perspective_lut vpc_get_remap_lut vpc_get_rotation_matrix
            png_get_image_info""",
        "0dr": "sys_get_chn_csc_matrix",
        "d0r": "vpc_calc_hist",
        "ddr": "pngd_get_image_data",
        "dddr": "vdec_get_frame",
        "l0r": "sys_wait_epoll",
        "000r": "dvpp_get_version",
    },
}

# By module and name: the shape of a call's answer.  A call of a module that computes and that is not here is "r".
REFUSED: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        module: MappingProxyType({name: shape for shape, names in shapes.items() for name in names.split()})
        for module, shapes in _NAMES.items()
    }
)


def answer(shape: str, code: int) -> object:
    """Return a new answer of a refusing call of this shape."""
    outputs = tuple(_OUTPUTS[letter](code) for letter in shape)
    return outputs if len(outputs) > 1 else outputs[0]
