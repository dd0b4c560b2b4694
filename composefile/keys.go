package composefile

// Why a key is refused.
const (
	whyMachine   = "it reaches the machine, which other organizations share"
	whyPrivilege = "it gives privileges that executions do not have"
	whyFiles     = "it names files that are not on the nodes: put values into environment, and files into an image"
	whyPorts     = "ports are not published: services of the file reach each other by name; berth service publishes a port"
	whyBuild     = "images are not built here: build, push and name the image"
	whyEngine    = "it depends on the engine of one machine"
	whyNetworks  = "services on one network reach each other by name"
	whyUnknown   = "Compose files here have no such key"
)

// allowed has the keys of a service that are passed on.
func allowed() map[string]bool {
	keys := make(map[string]bool)
	for _, key := range []string{
		"image", "command", "entrypoint", "environment", "working_dir", "user", "depends_on", "healthcheck",
		"stop_signal", "stop_grace_period", "init", "deploy", "volumes", "networks", "scale", "hostname",
		"mem_limit", "cpus", "gpus", "shm_size", "tmpfs", "labels", "expose", "profiles", "pull_policy", "restart",
		"platform", "container_name", "read_only", "tty", "stdin_open", "annotations", "attach",
	} {
		keys[key] = true
	}
	return keys
}

// refused has the keys of a service that are refused, with the reason.
func refused() map[string]string {
	reasons := map[string]string{
		"build": whyBuild, "develop": whyBuild,
		"ports": whyPorts, "network_mode": whyMachine, "net": whyMachine, "links": whyNetworks, "external_links": whyMachine,
		"extra_hosts": whyMachine, "dns": whyMachine, "dns_opt": whyMachine, "dns_search": whyMachine,
		"mac_address": whyMachine,
		"env_file":    whyFiles, "label_file": whyFiles, "secrets": whyFiles, "configs": whyFiles, "extends": whyFiles,
		"credential_spec": whyFiles, "volumes_from": whyMachine,
		"provider": whyEngine, "models": whyEngine, "runtime": whyEngine, "isolation": whyEngine, "storage_opt": whyEngine,
		"volume_driver": whyEngine, "logging": whyEngine, "log_driver": whyEngine, "log_opt": whyEngine,
		"pre_start": whyEngine, "post_start": whyEngine, "pre_stop": whyEngine, "use_api_socket": whyMachine,
	}
	for _, key := range []string{
		"privileged", "cap_add", "cap_drop", "security_opt", "group_add", "devices", "device_cgroup_rules", "sysctls",
		"ulimits", "userns_mode", "oom_kill_disable", "oom_score_adj",
	} {
		reasons[key] = whyPrivilege
	}
	for _, key := range []string{
		"pid", "ipc", "uts", "cgroup", "cgroup_parent", "blkio_config", "cpu_count", "cpu_percent", "cpu_period", "cpu_quota",
		"cpu_rt_period", "cpu_rt_runtime", "cpu_shares", "cpuset", "mem_reservation", "mem_swappiness", "memswap_limit",
		"pids_limit", "domainname",
	} {
		reasons[key] = whyMachine
	}
	return reasons
}

// allowedIn has the keys that parts of a file may have. A part that is not listed is
// passed on as Docker Compose's library reads it.
func allowedIn() map[string][]string {
	return map[string][]string{
		"deploy":           {"replicas", "resources", "labels", "mode", "endpoint_mode", "restart_policy"},
		"deploy.resources": {"limits", "reservations"},
		"limits":           {"cpus", "memory", "pids"},
		"reservations":     {"cpus", "memory", "devices"},
		"device":           {"driver", "count", "capabilities", "device_ids"},
		"healthcheck":      {"test", "interval", "timeout", "retries", "start_period", "start_interval", "disable"},
		"volume":           {"driver", "labels", "name"},
		"network":          {"driver", "labels", "name", "attachable", "internal"},
		"service volume":   {"type", "source", "target", "read_only", "volume", "tmpfs", "consistency"},
	}
}
