package engine

import "time"

// bigStart is how long an engine may take that loads tens of gigabytes and compiles
// kernels.
const bigStart = 30 * time.Minute

// ollamaScript imports a model into a store of its own, then serves it: a server of
// Ollama loads by name only. Its arguments are the file and the name.
const ollamaScript = `export OLLAMA_MODELS=/tmp/ollama
OLLAMA_HOST=127.0.0.1:11434 ollama serve & server=$!
until OLLAMA_HOST=127.0.0.1:11434 ollama list >/dev/null 2>&1; do
  kill -0 $server || exit 1
  sleep 0.2
done
printf 'FROM %s\n' "$1" >/tmp/Modelfile
OLLAMA_HOST=127.0.0.1:11434 ollama create "$2" -f /tmp/Modelfile || exit 1
kill $server && wait $server
export OLLAMA_HOST=127.0.0.1:$PORT
exec ollama serve`

// Shipped returns the engines that every node knows. A node offers those of which it
// has the program, or the Docker engine for the image.
func Shipped() []Engine {
	return []Engine{vllm(), llamacpp(), ollama(), sglang()}
}

func vllm() Engine {
	return Engine{
		Name: "vllm",
		Command: []string{
			"vllm", "serve", "{model_path}", "--host", "127.0.0.1", "--port", "{port}",
			"--served-model-name", "{deployment}", "{model}", "--tensor-parallel-size", "{gpus}", argsPlace,
		},
		// Old versions log prompts at the level info unless a flag says otherwise, which
		// newer ones do not know.
		Env: map[string]string{
			"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1", "VLLM_LOGGING_LEVEL": "WARNING",
		},
		Formats: []string{Safetensors},
		Allow: []string{
			"--block-size=int", "--cpu-offload-gb=number", "--disable-custom-all-reduce", "--dtype=word",
			"--enable-auto-tool-choice",
			"--enable-chunked-prefill", "--enable-expert-parallel", "--enable-prefix-caching", "--enforce-eager",
			"--gpu-memory-utilization=number", "--kv-cache-dtype=word", "--max-logprobs=int", "--max-model-len=int",
			"--max-num-batched-tokens=int", "--max-num-seqs=int", "--no-enable-prefix-caching",
			"--pipeline-parallel-size=int", "--quantization=word", "--reasoning-parser=word", "--seed=int",
			"--swap-space=number", "--tool-call-parser=word",
		},
		HealthPath: "/health", MetricsPath: "/metrics", Concurrency: 256, GPU: true, StartLimit: bigStart,
	}
}

func llamacpp() Engine {
	return Engine{
		Name: "llama.cpp",
		Command: []string{
			"llama-server", "--model", "{model_path}", "--alias", "{deployment}", "--host", "127.0.0.1",
			"--port", "{port}", "--metrics", "--no-webui", argsPlace,
		},
		// As many slots as Concurrency, unless the user's --parallel replaces the variable. They
		// share the context. Versions that do not know the second variable divide it among them.
		Env:     map[string]string{"LLAMA_ARG_N_PARALLEL": "16", "LLAMA_ARG_KV_UNIFIED": "true"},
		Formats: []string{GGUF},
		Allow: []string{
			"--batch-size=int", "--cache-type-k=word", "--cache-type-v=word", "--cont-batching", "--ctx-size=int",
			"--embeddings", // A server answers embeddings or chats, not both.
			"--flash-attn=word", "--jinja", "--mlock", "--n-gpu-layers=int", "--n-predict=int", "--parallel=int",
			"--pooling=word", "--seed=int", "--split-mode=word", "--threads=int", "--threads-batch=int",
			"--ubatch-size=int",
		},
		HealthPath: "/health", MetricsPath: "/metrics", Concurrency: 16,
	}
}

func ollama() Engine {
	return Engine{
		Name: "ollama", Needs: []string{"ollama"},
		Command: []string{"/bin/sh", "-c", ollamaScript, "ollama", "{model_path}", "{deployment}"},
		Env: map[string]string{
			"OLLAMA_KEEP_ALIVE": "-1", "OLLAMA_NUM_PARALLEL": "8", "OLLAMA_NOPRUNE": "1",
		},
		Formats: []string{GGUF}, HealthPath: "/api/version", Concurrency: 8, StartLimit: bigStart,
	}
}

func sglang() Engine {
	return Engine{
		Name: "sglang",
		Command: []string{
			"python3", "-m", "sglang.launch_server", "--model-path", "{model_path}", "--host", "127.0.0.1",
			"--port", "{port}", "--served-model-name", "{deployment}", "--tp-size", "{gpus}", "--enable-metrics", argsPlace,
		},
		Image: "docker.io/lmsysorg/sglang:latest",
		Env:   map[string]string{"HF_HUB_OFFLINE": "1"}, Formats: []string{Safetensors},
		Allow: []string{
			"--attention-backend=word", "--chunked-prefill-size=int", "--context-length=int", "--cpu-offload-gb=int",
			"--disable-cuda-graph",
			"--disable-radix-cache", "--dtype=word", "--enable-torch-compile", "--kv-cache-dtype=word",
			"--max-running-requests=int", "--mem-fraction-static=number", "--quantization=word",
			"--reasoning-parser=word", "--schedule-policy=word", "--tool-call-parser=word",
		},
		HealthPath: "/health", MetricsPath: "/metrics", Concurrency: 256, GPU: true, StartLimit: bigStart,
	}
}
