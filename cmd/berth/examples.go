package main

import (
	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
)

// finishHelp wraps the help of the commands below root, and gives them examples
// unless they have some.
func finishHelp(root *cobra.Command) {
	for _, cmd := range commandsBelow(root) {
		cmd.Long = cli.Wrap(cmd.Long)
	}
	for path, text := range examplesByPath() {
		for _, cmd := range commandsBelow(root) {
			if cmd.CommandPath() == "berth "+path && cmd.Example == "" {
				cmd.Example = text
			}
		}
	}
}

// commandsBelow returns the visible commands of the tree below root.
func commandsBelow(root *cobra.Command) []*cobra.Command {
	var all []*cobra.Command
	for _, cmd := range root.Commands() {
		if !cmd.Hidden && cmd.Name() != "help" && cmd.Name() != "completion" {
			all = append(append(all, cmd), commandsBelow(cmd)...)
		}
	}
	return all
}

// examplesByPath returns examples of commands by their path.
//
//nolint:funlen // A row for each command.
func examplesByPath() map[string]string {
	return map[string]string{
		"storage ls":         `  berth storage ls models/`,
		"storage get":        `  berth storage get models/model.bin`,
		"storage rm":         `  berth storage rm -r results/2025`,
		"storage usage":      `  berth storage usage --json`,
		"outputs ls":         `  berth outputs ls 8f3a2b1c`,
		"billing activities": `  berth billing activities -n 20`,
		"secret ls":          `  berth secret ls --json`,
		"secret rm":          `  berth secret rm HF_TOKEN`,
		"outputs get":        `  berth outputs get 8f3a2b1c model.pt --dir results`,
		"run": `  berth run train.py
  berth run --gpu a100:2 --timeout 30m --tag nightly train.py
  berth run --gpu l40s,a100 --min-vram 40g train.py
  berth run -d --preemptible --max-retries 3 train.py
  echo 'print(6 * 7)' | berth run -`,
		"service run": `  berth service run --port 8000 server.py
  berth service run --dir . --gpu h100 --health-path /health --replicas 2 -- python3 -m server`,
		"service ls":    `  berth service ls --replicas`,
		"service logs":  `  berth service logs 8f3a2b1c --replica 2`,
		"service scale": `  berth service scale 8f3a2b1c 3`,
		"service rm":    `  berth service rm 8f3a2b1c`,
		"deploy create": `  berth deploy create meta-llama/Llama-3.1-8B-Instruct --gpu h100 --hf-token-file token
  berth deploy create bartowski/SmolLM2-1.7B-Instruct-GGUF:Q4_K_M --engine llama.cpp`,
		"deploy ls":    `  berth deploy ls`,
		"deploy show":  `  berth deploy show 018f3a2b-1c00-7000-8000-000000000001`,
		"deploy logs":  `  berth deploy logs 018f3a2b-1c00-7000-8000-000000000001`,
		"deploy stop":  `  berth deploy stop 018f3a2b-1c00-7000-8000-000000000001`,
		"deploy start": `  berth deploy start 018f3a2b-1c00-7000-8000-000000000001`,
		"deploy rm":    `  berth deploy rm 018f3a2b-1c00-7000-8000-000000000001`,
		"callbacks": `  berth callbacks 8f3a2b1c
  berth callbacks --redeliver 8f3a2b1c`,
		"metrics": `  berth metrics 8f3a2b1c
  berth metrics --since 10m --step 5s 8f3a2b1c`,
		"logs": `  berth logs 8f3a2b1c
  berth logs -f --tail 20 8f3a2b1c
  berth logs --since 10m 8f3a2b1c
  berth logs --mine --level warning`,
		"ps": `  berth ps
  berth ps -a --status failed --since 24h
  berth ps --watch --tag nightly`,
		"show": `  berth show 8f3a2b1c
  berth show --code 8f3a2b1c > train.py`,
		"explain":            `  berth explain 8f3a2b1c --defrag`,
		"abort":              `  berth abort 8f3a2b1c 77d0c9e4`,
		"stop":               `  berth stop 8f3a2b1c`,
		"rm":                 `  berth rm 8f3a2b1c`,
		"gpu recommend":      `  berth gpu recommend train.py --objective cheapest --timeout 5m`,
		"gpu types":          `  berth gpu types`,
		"credits":            `  berth credits`,
		"credits ledger":     `  berth credits ledger -n 20`,
		"node":               `  berth node --config /etc/berth/berth.yaml`,
		"config check":       `  berth config check /etc/berth/berth.yaml`,
		"replay":             `  berth replay 4711`,
		"whatif":             `  berth whatif --add 'h100:8 x2' --drain n3`,
		"dev":                `  berth dev --nodes 3 --gpus 'n1=h100:8;n2=a100:4'`,
		"dev down":           `  berth dev down`,
		"demo":               `  berth demo`,
		"version":            `  berth version --json`,
		"admin nodes":        `  berth admin nodes`,
		"admin node list":    `  berth admin node list --json`,
		"admin node drain":   `  berth admin node drain gpu-3 --deadline 10m --wait`,
		"admin node undrain": `  berth admin node undrain gpu-3`,
		"admin node remove":  `  berth admin node remove gpu-3`,
		"admin token create": `  berth admin token create --role worker --uses 4 --out join.token`,
		"admin grant":        `  berth admin grant --org lab --credits 500 --reason 'first quarter'`,
		"admin org list":     `  berth admin org list`,
		"admin org trust":    `  berth admin org trust lab`,
		"admin quota list":   `  berth admin quota list --org lab`,
		"admin quota set": `  berth admin quota set --org lab --max-gpus 4
  berth admin quota set --org lab --tag nightly --max-concurrent 2
  berth admin quota set --org lab --profile gpu.h100 --deny`,
		"admin quota remove":     `  berth admin quota remove --org lab --tag nightly`,
		"admin price list":       `  berth admin price list`,
		"admin price set":        `  berth admin price set h100 2.5`,
		"admin price rm":         `  berth admin price rm h100`,
		"admin model list":       `  berth admin model list`,
		"admin model set":        `  berth admin model set chat-small 8f3a2b1c --prompt 0.1 --completion 0.4`,
		"admin model rm":         `  berth admin model rm chat-small`,
		"admin billing mode":     `  berth admin billing mode enforce`,
		"admin brake show":       `  berth admin brake show`,
		"admin brake set":        `  berth admin brake set --share 50`,
		"admin brake release":    `  berth admin brake release`,
		"admin raft peers":       `  berth admin raft peers`,
		"admin raft transfer":    `  berth admin raft transfer gpu-2`,
		"admin raft recover":     `  berth admin raft recover --help`,
		"admin raft rejoin":      `  berth admin raft rejoin --help`,
		"admin raft skip":        `  berth admin raft skip --help`,
		"admin snapshot save":    `  berth admin snapshot save backup.berth`,
		"admin snapshot verify":  `  berth admin snapshot verify backup.berth`,
		"admin snapshot restore": `  berth admin snapshot restore --help`,
		"bench packing":          `  berth bench packing --nodes nodes.csv --pods pods.csv --policy all`,
		"bench simulate":         `  berth bench simulate --nodes 1000 --plots plots`,
		"bench schedule":         `  berth bench schedule`,
		"bench state":            `  berth bench state --executions 1000000`,
		"bench workers":          `  berth bench workers --workers 200`,
		"bench dst":              `  berth bench dst --time 60s`,
		"bench faults":           `  berth bench faults --help`,
		"bench failpoints":       `  go run -tags faults ./cmd/berth bench failpoints`,
		"bench idle":             `  berth bench idle`,
		"bench executions":       `  berth bench executions`,
		"bench api":              `  berth bench api`,
		"bench inference":        "  berth bench inference\n  berth bench inference --llama bin/engines/llama-node",
	}
}
