package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
)

// serveSGLang stands for SGLang, of which python3 executes a module: it takes arguments and
// files as that does, and ends if it does not know one. It answers a chat by its arguments.
func serveSGLang(args []string) error {
	if args[0] != "sglang.launch_server" {
		return fmt.Errorf("no module named %s", args[0])
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	model, name := flags.String("model-path", "", ""), flags.String("served-model-name", "", "")
	host, port := flags.String("host", "127.0.0.1", ""), flags.Int("port", 30000, "")
	_, _ = flags.Int("tp-size", 1, ""), flags.Int("context-length", 0, "")
	_, _ = flags.Bool("enable-metrics", false, ""), flags.Float64("mem-fraction-static", 0, "")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unrecognized arguments: %q", flags.Args())
	}
	for _, name := range []string{"config.json", "model.safetensors"} {
		if _, err := os.Stat(filepath.Join(*model, name)); err != nil {
			return err
		}
	}
	http.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Model string }
		if json.NewDecoder(r.Body).Decode(&asked) != nil || asked.Model != *name {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"argv": os.Args[1:], "offline": os.Getenv("HF_HUB_OFFLINE")})
	})
	return http.ListenAndServe(net.JoinHostPort(*host, strconv.Itoa(*port)), nil)
}
