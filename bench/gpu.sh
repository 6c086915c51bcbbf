#!/usr/bin/env bash
# Builds, tests and measures on a machine with a GPU, in one call of less than 8 minutes. The output of each step goes to
# a file of its name in the folder OUT, its results to a JSON file next to it. A failed step does not stop the others.
#
#   bench/gpu.sh OUT            on a machine with our packages: builds the programs and runs them
#   bench/gpu.sh --pack FILE    on a machine with our packages but no GPU: packs the programs for another machine
#   bench/gpu.sh OUT FILE       on a machine with a GPU but not our packages: unpacks the programs and runs them
#
# The machine with the GPU needs the driver, cuBLASLt of CUDA 13 (a toolkit's or PyTorch's), and nvcc to build. With NCCL
# (a package or PyTorch's) its transport is also tested; with several GPUs it is also measured.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
programs=(lockstep kernels_test cuda_device_test cuda_collectives_test nccl_test cuda_training_test)
most_seconds=460

build() {
  cmake --preset cuda && cmake --build --preset cuda --target lockstep_cuda "${programs[@]}" default_text
  cmake --build --preset cuda --target lockstep_nccl || echo "no NCCL: its transport is left out"
}

# Programs and modules with every library they load, except those of the C library.
pack() {
  local folder
  folder=$(mktemp -d)
  build
  mkdir -p "$folder"/{bin,lib,share,libraries}
  for program in "${programs[@]}"; do cp "build/cuda/bin/$program" "$folder/bin"; done
  cp build/cuda/lib/*.so "$folder/lib"
  cp build/cuda/share/default_text.txt "$folder/share"
  ldd "$folder"/bin/* "$folder"/lib/liblockstep_cuda.so | awk '$2 == "=>" && $3 ~ "^/" {print $3}' | sort -u |
    grep -Ev '/(libc|libm|libdl|librt|libpthread)\.so|libcublas|liblockstep_' | xargs -I{} cp -L {} "$folder/libraries"
  strip --strip-debug "$folder"/bin/* "$folder"/lib/*.so
  printf '%s\n' "$PWD" >"$folder/sources"
  tar -C "$folder" -cJf "$1" .
  rm -r "$folder"
  ls -l "$1"
}

# The tests have the path of the sources compiled in.
unpack() {
  mkdir -p build/gpu
  tar -C build/gpu -xJf "$1"
  local sources
  sources=$(cat build/gpu/sources)
  [ -e "$sources" ] || { mkdir -p "$(dirname "$sources")" && ln -s "$PWD" "$sources"; }
}

# step NAME SECONDS COMMAND ...: runs it for at most that long.
step() {
  local name=$1 limit=$2 begin=$SECONDS status=0
  shift 2
  if [ $((SECONDS + limit)) -gt $most_seconds ]; then
    limit=$((most_seconds - SECONDS))
  fi
  if [ $limit -lt 5 ]; then
    printf '%-28s no time left\n' "$name" | tee -a "$out/summary.txt"
    failed=yes
    return
  fi
  timeout -k 5 "$limit" "$@" >"$out/$name.txt" 2>&1 || status=$?
  local result
  result=$(grep 'SUMMARY\|tokens/s' "$out/$name.txt" || cat "$out/$name.txt")
  result=$(tail -n 1 <<<"$result")
  printf '%-28s status %3d  %4d s  %s\n' "$name" $status $((SECONDS - begin)) "${result:0:110}" | tee -a "$out/summary.txt"
  [ $status = 0 ] || failed=yes
}

if [ "${1:-}" = --pack ]; then
  pack "$2"
  exit
fi
out=${1:?usage: bench/gpu.sh OUT [FILE] or bench/gpu.sh --pack FILE}
mkdir -p "$out"
: >"$out/summary.txt"
failed=no
bin=build/cuda/bin
if [ -n "${2:-}" ]; then
  bin=build/gpu/bin
  step unpack 60 bash -c "$(declare -f unpack); set -e; unpack '$2'"
  # Without a toolkit, cuBLASLt comes with PyTorch.
  find_library() { find / -name "$1" -not -type d -not -path '/proc/*' 2>/dev/null | head -n 1 || true; }
  blas=$(find_library libcublasLt.so.13)
  nccl=$(find_library libnccl.so.2)
  export LD_LIBRARY_PATH=$PWD/build/gpu/libraries:${blas:+$(dirname "$blas"):}${nccl:+$(dirname "$nccl"):}${LD_LIBRARY_PATH:-}
else
  step build 280 bash -c "programs=(${programs[*]}); $(declare -f build); build"
fi

step machine 30 bash -c "nvidia-smi; nvcc --version; '$bin/lockstep' doctor"
for test in "${programs[@]:1}"; do
  step "$test" 60 "$bin/$test" --gtest_output="json:$out/$test.json"
done
if command -v compute-sanitizer >/dev/null; then
  step memcheck 45 compute-sanitizer --error-exitcode 1 "$bin/cuda_device_test" --gtest_filter='*Lie*:*Half*:*Copies*'
  step memcheck_training 60 compute-sanitizer --error-exitcode 1 "$bin/lockstep" train serial --device cuda --steps 1
  step racecheck 45 compute-sanitizer --tool racecheck --error-exitcode 1 "$bin/lockstep" train serial --device cuda --steps 1
fi
step all_reduce 60 "$bin/lockstep" bench all_reduce --device cuda --ranks 4 -b 1M -e 1G -f 4 -n 20 \
  --algorithm direct,ring --json "$out/all_reduce.json"
gpus=$({ nvidia-smi -L 2>/dev/null || true; } | wc -l)
if [ "$gpus" -gt 1 ]; then
  step all_reduce_nccl 60 "$bin/lockstep" bench all_reduce --device cuda --ranks "$gpus" -b 1M -e 1G -f 4 -n 20 \
    --algorithm ring,segmented_ring,halving_doubling,vendor --json "$out/all_reduce_nccl.json"
fi
model=(--device cuda --model gpt2 --dtype bf16 --global-batch 32 --sequence-length 1024)
for technique in ddp fsdp ps pipeline tp sp ring-attention ulysses cp; do
  arguments=("${model[@]}" --ranks 4 --steps 10 --json "$out/$technique.json")
  [ $technique = pipeline ] && arguments+=(--micro-batches 8)
  [ $technique = ps ] && arguments+=(--colocated)
  step "$technique" 30 "$bin/lockstep" train "$technique" "${arguments[@]}"
done
step gpt2 90 "$bin/lockstep" bench model "${model[@]}" --steps 20 --threads 1 --json "$out/gpt2.json"
shapes=(--model nano --global-batch 8)
step calibrate 60 "$bin/lockstep" calibrate --device cuda --ranks 2 "${shapes[@]}" --most-bytes 4M --json "$out/gpus.json"
step score 60 python3 bench/calibrate/score.py "$bin/lockstep" "$out/gpus.json" --device cuda --ranks 2 --rounds 2 --json "$out/score.json"
if python3 -c 'import torch' 2>/dev/null; then
  step pytorch 120 python3 bench/techniques/pytorch_gpt2.py --json "$out/pytorch.json"
else
  echo "pytorch: skipped: no python3 with torch" | tee -a "$out/summary.txt"
fi
[ $failed = no ]
