//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// ServiceStart is the body of POST /execution/service/start.
type ServiceStart struct {
	PythonStart

	Port             int    `json:"port" default:"8000" min:"1" max:"65535" doc:"TCP port on which the program listens inside its sandbox; also in its variable PORT."`
	HealthPath       string `json:"health_path" maxlen:"512" pattern:"^(/[!-~]*)?$" doc:"Path that answers GET with 200 to 399 once the program is ready; empty: it is ready once the port accepts a connection."`
	Replicas         int    `json:"replicas" default:"1" min:"1" max:"64" doc:"How many of them run."`
	Restart          string `json:"restart" default:"\"always\"" enum:"always,on-failure,never" doc:"Whether a replica that ended by itself is started again: after 10 s at first, doubled with each end in a row up to 5 minutes."`
	ReadinessTimeout int    `json:"readiness_timeout" default:"600" min:"1" max:"86400" doc:"Seconds from its start in which a replica must be ready; else it fails as not_ready."`
	DockerImageRef   string `json:"docker_image_ref" maxlen:"512" doc:"Docker image that the replicas execute: command, if given, is in place of its arguments (CMD)."`
	User             string `json:"docker_run_user" maxlen:"255" pattern:"^[A-Za-z0-9_.-]*(:[A-Za-z0-9_.-]+)?$" doc:"With docker_image_ref: user, or user:group, in place of the image's own."`
	Registry
}

// Check holds the rules that tags cannot say.
func (s *ServiceStart) Check(f *Faults) {
	if s.DockerImageRef != "" {
		s.InImage = true
	}
	s.PythonStart.Check(f)
	s.Registry.check(f)
	if s.DockerImageRef != "" && (s.Code != "" || s.Module != "" || s.Script != "") {
		f.Value("an image executes its own program: only command goes with it", "body", "docker_image_ref")
	}
	if s.MaxCredits > 0 {
		f.Value("a service has no ceiling of credits: it runs until it is deleted or the credits end", "body", "max_credits")
	}
	if s.Outputs != "" {
		f.Value("the replicas of a service leave no outputs", "body", "outputs_prefix")
	}
	if s.Preemptible {
		f.Value("services are not preempted", "body", "preemptible")
	}
}

// ServiceStarted answers the start of a service.
type ServiceStarted struct {
	ExecutionID compute.ExecutionID `json:"execution_id"`
	Status      compute.Status      `json:"status"`
	URL         string              `json:"url" doc:"Where it is reached, through any node."`
	Message     string              `json:"message"`
}

// Service is a service with its replicas.
type Service struct {
	ExecutionID     compute.ExecutionID `json:"execution_id"`
	Name            *string             `json:"name"`
	Status          compute.Status      `json:"status"`
	StatusDetails   *string             `json:"status_details"`
	Detail          *string             `json:"detail"`
	URL             string              `json:"url"`
	HardwareProfile string              `json:"hardware_profile"`
	Port            int                 `json:"port"`
	HealthPath      string              `json:"health_path"`
	Restart         string              `json:"restart"`
	Replicas        int                 `json:"replicas" doc:"How many are wanted."`
	Ready           int                 `json:"ready" doc:"How many are ready."`
	CreatedAt       compute.Instant     `json:"created_at"`
	Billed          compute.Credits     `json:"billed" doc:"For replicas that have ended."`
	Rows            []ServiceReplica    `json:"rows" doc:"A row per replica, by number."`
}

// ServiceReplica is one replica of a service: the newest execution in its place.
type ServiceReplica struct {
	Number        int                 `json:"number"`
	ExecutionID   compute.ExecutionID `json:"execution_id"`
	Status        compute.Status      `json:"status"`
	StatusDetails *string             `json:"status_details"`
	Detail        *string             `json:"detail" doc:"Why it ended; of a deployment's replica that has not started, how far its model is."`
	Ready         bool                `json:"ready"`
	ReadyAt       *compute.Instant    `json:"ready_at" doc:"When that last changed."`
	Node          *string             `json:"node"`
	StartTime     *compute.Instant    `json:"start_time"`
	Crashes       int                 `json:"crashes" doc:"Ends in a row."`
	Restarts      int                 `json:"restarts"`
	NextStart     *compute.Instant    `json:"next_start" doc:"When the next one may start, after the back-off; null while it runs."`
	CreditsEnd    *compute.Instant    `json:"credits_end" doc:"When the organization's credits are expected to end, once that is near."`
}

// ServiceScale is the body of POST /services/{id}/scale.
type ServiceScale struct {
	Replicas int `json:"replicas" required:"true" min:"0" max:"64" doc:"How many are wanted; 0 stops all and keeps the service."`
}
