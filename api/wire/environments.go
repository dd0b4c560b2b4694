//nolint:lll // A field and its rules are one line.
package wire

import (
	"fmt"
	"strings"

	"berth/compute"
	"berth/compute/requirements"
)

// NewEnvironment is the body of POST /environments: requirements, or a path.
type NewEnvironment struct {
	Name         string `json:"name" required:"true" pattern:"^[a-z0-9][a-z0-9._-]{0,62}$" doc:"Name by which executions ask for it."`
	Requirements string `json:"requirements" maxlen:"16384" doc:"Requirements in the format of pip, as requirements_content of a start. Every node installs them."`
	Path         string `json:"path" maxlen:"512" doc:"In place of requirements, and for operators only: a directory of the nodes. With an interpreter in it, as in a virtual environment, executions use that; else it is added to their module path. Nodes without it do not offer the environment."`
	Interpreter  string `json:"interpreter" maxlen:"512" doc:"The interpreter below path; bin/python3, if there is one, when absent."`
}

// Check holds the rules that tags cannot say.
func (e *NewEnvironment) Check(f *Faults) {
	switch has := strings.TrimSpace(e.Requirements) != ""; {
	case has == (e.Path != ""):
		f.Value("an environment has requirements or a path", "body", "requirements")
	case has && e.Interpreter != "":
		f.Value("an interpreter belongs to a path", "body", "interpreter")
	}
	for _, fault := range requirements.Check(e.Requirements) {
		f.Value(fmt.Sprintf("line %d: %s", fault.Line, fault.Why), "body", "requirements")
	}
	if e.Path != "" {
		if why := compute.BadEnvironmentPath(e.Path); why != "" {
			f.Value(why, "body", "path")
		}
	}
	if why := compute.BadInterpreter(e.Interpreter); why != "" {
		f.Value(why, "body", "interpreter")
	}
}

// Environment is a named environment.
type Environment struct {
	Name         string                    `json:"name"`
	Status       compute.EnvironmentStatus `json:"status" doc:"ready on at least one node, preparing, or failed."`
	Error        *string                   `json:"error" doc:"The installer's words, where it failed on a node."`
	Shared       bool                      `json:"shared" doc:"It is the operator's: every organization may use it."`
	Requirements *string                   `json:"requirements"`
	Path         *string                   `json:"path"`
	Interpreter  *string                   `json:"interpreter"`
	Nodes        []EnvironmentNode         `json:"nodes" doc:"The nodes that reported on it."`
	Size         int64                     `json:"size" doc:"Bytes of disk space on a node; 0 for a path."`
	CreatedAt    compute.Instant           `json:"created_at"`
}

// EnvironmentNode is how far a node is with an environment.
type EnvironmentNode struct {
	Node   string                    `json:"node" doc:"Name of the node."`
	Status compute.EnvironmentStatus `json:"status" doc:"preparing, ready or failed."`
	Size   int64                     `json:"size" doc:"Bytes of disk space."`
	Error  *string                   `json:"error"`
	At     compute.Instant           `json:"at" doc:"When it was reported."`
}
