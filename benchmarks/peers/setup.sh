#!/usr/bin/env bash
# One environment a peer under DIR, never the project's own. Torch comes first and pinned, so that nothing pulls CUDA.
set -euo pipefail
dir="${1:?usage: setup.sh DIR}"
constraints="$(cd "$(dirname "$0")/../.." && pwd)/constraints.txt"
export DS_BUILD_OPS=0

make() {  # make NAME PACKAGE...
  local name="$1"; shift
  [ -x "$dir/$name/bin/python" ] || python3 -m venv "$dir/$name"
  "$dir/$name/bin/pip" install -q -c "$constraints" "$@"
}
make fitcheck fitcheck-llm==0.3.1
make ftuneai ftuneai==0.4.1
make canifinetune canifinetune==0.4.1
make silence train-in-silence==0.1.6
make torch torch setuptools wheel
make torch accelerate==1.15.0 transformers==5.24.0
make torch --no-build-isolation deepspeed==0.19.8
make llm_analysis setuptools 'fire<0.6' 'transformers<5'
"$dir/llm_analysis/bin/pip" install -q --no-deps llm-analysis==0.2.2  # its huggingface-hub pin is of 2023
