//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// DeploymentCreate is the body of POST /inference/create.
type DeploymentCreate struct {
	Model       string  `json:"hf_model_id" required:"true" maxlen:"256" doc:"Model as on the hub: owner/name, with @revision, and with :part for the file whose name has that part. It is looked for in the organization's storage below models/, in the operator's directory and on the hub."`
	GPUType     string  `json:"gpu_type" maxlen:"64" doc:"GPU type of each replica, or cpu; empty: any GPU for an engine that needs one, else cpu."`
	GPUCount    int     `json:"gpu_count" default:"1" min:"1" max:"8"`
	GPUVRAM     int     `json:"gpu_vram_gb" min:"0" max:"1024" doc:"Memory that the GPU must have at least."`
	Args        string  `json:"vllm_args" maxlen:"4096" doc:"Further arguments of the engine, those of its list; an error names them."`
	TargetRPS   float64 `json:"target_rps" required:"true" doc:"Requests per second that one replica is meant to answer."`
	TargetP95   int     `json:"target_latency_p95_ms" required:"true" min:"1" max:"3600000" doc:"Time to the first byte of an answer, 95th percentile, in milliseconds."`
	Window      int     `json:"stabilisation_window" required:"true" min:"0" max:"86400" doc:"Seconds for which fewer replicas must be enough before some are stopped."`
	Token       string  `json:"hf_token" maxlen:"1024" secret:"true" doc:"Token for the hub. It is sealed, and never shown."`
	MinReplicas int     `json:"min_replicas" default:"1" min:"0" max:"64"`
	MaxReplicas int     `json:"max_replicas" default:"1" min:"1" max:"64"`
	Name        string  `json:"name" maxlen:"100"`
	Engine      string  `json:"engine" maxlen:"64" doc:"Engine of the nodes' configuration; empty: vllm with GPUs, else the first that nodes have."`
}

// Check holds the rules that tags cannot say.
func (d *DeploymentCreate) Check(f *Faults) {
	checkName(f, d.Name, "body", "name")
	if !(d.TargetRPS > 0 && d.TargetRPS <= 1e6) {
		f.Value("target_rps is above 0 and at most 1,000,000", "body", "target_rps")
	}
	if d.MinReplicas > d.MaxReplicas {
		f.Value("min_replicas is at most max_replicas", "body", "min_replicas")
	}
}

// DeploymentUpdate is the body of PATCH /inference/deployments/{id}. Absent fields keep their value.
type DeploymentUpdate struct {
	Model       string   `json:"hf_model_id" maxlen:"256" doc:"Another model, or another revision of it."`
	Args        *string  `json:"vllm_args" maxlen:"4096" doc:"Further arguments of the engine, in place of those before."`
	Token       string   `json:"hf_token" maxlen:"1024" secret:"true" doc:"Another token for the hub."`
	TargetRPS   *float64 `json:"target_rps"`
	TargetP95   *int     `json:"target_latency_p95_ms" min:"1" max:"3600000"`
	Window      *int     `json:"stabilisation_window" min:"0" max:"86400"`
	MinReplicas *int     `json:"min_replicas" min:"0" max:"64"`
	MaxReplicas *int     `json:"max_replicas" min:"1" max:"64"`
}

// Check holds the rules that tags cannot say.
func (d *DeploymentUpdate) Check(f *Faults) {
	if d.TargetRPS != nil && !(*d.TargetRPS > 0 && *d.TargetRPS <= 1e6) {
		f.Value("target_rps is above 0 and at most 1,000,000", "body", "target_rps")
	}
	if *d == (DeploymentUpdate{}) {
		f.Value("nothing to change", "body")
	}
}

// Replaces reports whether replicas have to be replaced.
func (d *DeploymentUpdate) Replaces() bool { return d.Model != "" || d.Args != nil || d.Token != "" }

// PendingUpdate has the model and arguments that the replicas of a deployment will execute.
type PendingUpdate struct {
	Model string   `json:"hf_model_id"`
	Args  []string `json:"vllm_args"`
}

// DeploymentCreated answers the creation of a deployment, and its changes.
type DeploymentCreated struct {
	ID      compute.ExecutionID `json:"deployment_id"`
	Status  string              `json:"status" doc:"pending, starting, ready, scaling, paused, failed or stopped."`
	Message string              `json:"message"`
}

// Deployment is a deployment of a model.
type Deployment struct {
	ID           compute.ExecutionID `json:"deployment_id"`
	Name         *string             `json:"name"`
	Status       string              `json:"status"`
	Detail       *string             `json:"status_details"`
	Model        string              `json:"hf_model_id"`
	Engine       string              `json:"engine"`
	Args         []string            `json:"vllm_args"`
	Profile      string              `json:"hardware_profile"`
	TargetRPS    float64             `json:"target_rps"`
	TargetP95    int64               `json:"target_latency_p95_ms"`
	Window       int64               `json:"stabilisation_window"`
	MinReplicas  int                 `json:"min_replicas"`
	MaxReplicas  int                 `json:"max_replicas"`
	Replicas     int                 `json:"replicas" doc:"How many are wanted."`
	Ready        int                 `json:"ready_replicas"`
	CreatedAt    compute.Instant     `json:"created_at"`
	Billed       compute.Credits     `json:"billed" doc:"For replicas that have ended."`
	BaseURL      string              `json:"base_url" doc:"URL of the OpenAI-compatible API; model is the deployment_id."`
	Update       *PendingUpdate      `json:"update" doc:"Update that was asked for, until a replica with it is ready; null for none."`
	EngineOutput []string            `json:"engine_output" doc:"If it failed: the last lines of its engine."`
	Rows         []ServiceReplica    `json:"rows"`
}

// Deployments answers a page of the deployments.
type Deployments struct {
	Deployments []Deployment `json:"deployments"`
	Total       int          `json:"total" doc:"How many there are on all pages."`
}
