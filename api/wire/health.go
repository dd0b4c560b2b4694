package wire

// Ping answers /health/ping and /livez.
type Ping struct {
	Status string `json:"status"`
}

// Version answers /health/version.
type Version struct {
	Version string `json:"version"`
	Build   string `json:"build"`
}

// Health answers /readyz and /healthz.
type Health struct {
	Status        string `json:"status" doc:"ok, or what is missing."`
	KnownLeader   bool   `json:"known_leader"`
	LastContactMS int64  `json:"last_contact_ms" doc:"Since the leader was heard."`
	Index         uint64 `json:"index" doc:"Raft index of the newest view of this node."`
	Version       string `json:"version"`
}

// Target is one entry of Prometheus' HTTP service discovery.
type Target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}
