#!/bin/bash
# Builds the timer of FlashAttention-3's kernels; README.md beside this file says of what.
# usage: build.sh FLASH_ATTENTION_CHECKOUT CUTLASS_INCLUDE OUT_BINARY
# LAYOUTS=varlen in the environment leaves out calls of equal lengths (dense), which take half of the compiler's time.
# Objects are kept in OUT_BINARY.varlen or OUT_BINARY.all; one that is newer than its source is not made again.
# One compiler at a time: each takes minutes and gigabytes.
set -euo pipefail

if [ $# -ne 3 ]; then
  sed -n '3s/^# //p' "$0" >&2
  exit 2
fi
hopper=$1/hopper
cutlass=$2
binary=$3
for needed in "$hopper/flash_fwd_launch_template.h" "$cutlass/cutlass/cutlass.h"; do
  [ -f "$needed" ] || { echo "build.sh: no $needed" >&2; exit 2; }
done
case ${LAYOUTS:-all} in
  all | varlen) ;;
  *) echo "build.sh: LAYOUTS is \"$LAYOUTS\", neither all nor varlen" >&2; exit 2 ;;
esac
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
cuda=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
layout=${LAYOUTS:-all}
# A tarball has no .git of its own and may lie in another repository.
revision=${FLASH_ATTENTION_REVISION:-revision not known}
if [ -e "$1/.git" ]; then revision=$(git -C "$1" rev-parse --short HEAD); fi
objects=$binary.$layout.${revision// /-} # headers of another revision are not seen by a comparison of dates
mkdir -p "$objects"

# As hopper/setup.py sets them, without what no case here needs and without line numbers.
left_out=()
for part in PAGEDKV SPLIT APPENDKV LOCAL SOFTCAP FP16 FP8 HDIM64 HDIM96 HDIM192 HDIM256 SM8x HDIMDIFF64 HDIMDIFF192; do
  left_out+=("-DFLASHATTENTION_DISABLE_$part")
done
flags=(-O3 -std=c++17 --use_fast_math --expt-relaxed-constexpr --expt-extended-lambda
  -DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED -DCUTLASS_ENABLE_GDC_FOR_SM90 -DCUTLASS_DEBUG_TRACE_LEVEL=0 -DNDEBUG
  -gencode "arch=compute_90a,code=sm_90a" "-I$hopper" "-I$cutlass" "${left_out[@]}")

# compile COMPILER SOURCE [FLAG]...
compile() {
  local compiler=$1 source=$2 object
  shift 2
  object=$objects/$(basename "$source").o
  if [ "$object" -nt "$source" ]; then return; fi
  echo "$(date +%T) $(basename "$source")"
  nice -n "${NICE:-10}" "$compiler" "$@" -c "$source" -o "$object.part"
  mv "$object.part" "$object"
}

compile "$nvcc" "$hopper/flash_prepare_scheduler.cu" "${flags[@]}"
layouts=()
if [ "$layout" = varlen ]; then layouts=(-DLONGHAUL_VARLEN_ONLY); fi
for source in fwd_hdim128_bf16_packgqa bwd_hdim128_bf16 fwd_hdim128_bf16; do
  compile "$nvcc" "$hopper/instantiations/flash_${source}_sm90.cu" "${flags[@]}" "${layouts[@]}" \
    -include "$here/fewer_variants.cuh"
done

release=$("$nvcc" --version | sed -n 's/.*release.*, V//p')
own=(-O2 "${layouts[@]}" -std=c++20 -DFMT_HEADER_ONLY "-I$root"
  "-DFLASH_ATTENTION_REVISION=\"$revision\"" "-DNVCC_RELEASE=\"$release\"")
kernels=("${own[@]}" -gencode "arch=compute_90a,code=sm_90a" "-I$hopper" --expt-relaxed-constexpr)
for source in flash_attention_3/flash_call.cu call_timer.cu multiprocessor_clock.cu; do
  compile "$nvcc" "$root/validate/gpu/$source" "${kernels[@]}"
done
for source in validate/gpu/flash_attention_3/{bench,cases,reference}.cpp validate/gpu/power_state.cpp \
  validate/gpu/loop_samples.cpp validate/gpu/calibrate/{clock_probe,measuring_loop,noise}.cpp sim/core/invariant.cpp; do
  compile "${CXX:-g++}" "$root/$source" "${own[@]}" "-I$cuda/include"
done

# Needs the driver alone where it runs: CUDA's runtime and the C++ library are inside.
"$nvcc" -o "$binary" "$objects"/*.o -gencode "arch=compute_90a,code=sm_90a" -cudart static -ldl \
  -Xlinker -s -Xcompiler -static-libstdc++,-static-libgcc
ls -l "$binary"
