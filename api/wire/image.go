//nolint:lll // A field and its rules are one line.
package wire

import (
	"fmt"
	"strings"

	"berth/compute"
)

// Registry has the credentials of a start for the registry of its images. They are
// used to pull the images, and kept sealed until the execution has ended.
type Registry struct {
	CredentialType string `json:"docker_registry_credential_type" enum:"basic,aws" doc:"basic for a user name and a password, aws for a key of Amazon ECR. Without it images are pulled without credentials."`
	Username       string `json:"docker_username" maxlen:"255" doc:"With basic."`
	Password       string `json:"docker_password" maxlen:"8192" secret:"true" doc:"With basic. May be ${{ secrets.NAME }}: the secret of the user with that name."`
	AWSKeyID       string `json:"aws_access_key_id" maxlen:"255" secret:"true" doc:"With aws."`
	AWSSecret      string `json:"aws_secret_access_key" maxlen:"1024" secret:"true" doc:"With aws. May be ${{ secrets.NAME }}."`
	AWSSession     string `json:"aws_session_token" maxlen:"8192" secret:"true" doc:"With aws, for temporary keys."`
	AWSRegion      string `json:"aws_region" default:"\"us-east-1\"" maxlen:"64" pattern:"^[a-z0-9-]+$" doc:"With aws: the region of the registry."`
}

// Credentials returns the credentials for the registry, nil for none.
func (r *Registry) Credentials() *compute.RegistryCredentials {
	switch r.CredentialType {
	case "basic":
		return &compute.RegistryCredentials{Username: r.Username, Password: r.Password}
	case "aws":
		return &compute.RegistryCredentials{
			AWSKeyID: r.AWSKeyID, AWSSecret: r.AWSSecret, AWSSession: r.AWSSession, AWSRegion: r.AWSRegion,
		}
	}
	return nil
}

// check holds the rules that tags cannot say.
func (r *Registry) check(f *Faults) {
	missing := func(field, value string) {
		if value == "" {
			f.Value("docker_registry_credential_type "+r.CredentialType+" needs it", "body", field)
		}
	}
	switch r.CredentialType {
	case "basic":
		missing("docker_username", r.Username)
		missing("docker_password", r.Password)
	case "aws":
		missing("aws_access_key_id", r.AWSKeyID)
		missing("aws_secret_access_key", r.AWSSecret)
	default:
		if r.Username != "" || r.Password != "" || r.AWSKeyID != "" || r.AWSSecret != "" {
			f.Value("credentials need their type: basic or aws", "body", "docker_registry_credential_type")
		}
	}
	for field, value := range map[string]string{"docker_password": r.Password, "aws_secret_access_key": r.AWSSecret} {
		if _, err := compute.ExpandSecrets(value, func(string) (string, error) { return "", nil }); err != nil {
			f.Value(err.Error(), "body", field)
		}
	}
}

// Image is the program of an image.
type Image struct {
	Ref     string   `json:"docker_image_ref" maxlen:"512" doc:"The image, as in python:3.12-slim or registry.example.org/team/train@sha256:..."`
	Command []string `json:"docker_run_cmd" maxitems:"1000" maxlen:"131071" secret:"true" doc:"Arguments in place of the image's own (CMD); its entry point stays."`
	RunEnv  string   `json:"docker_run_env" maxlen:"1048576" secret:"true" doc:"Environment variables, a line NAME=VALUE each; empty lines and lines that begin with # are skipped. Beside env, which counts where both set a name."`
	User    string   `json:"docker_run_user" maxlen:"255" pattern:"^[A-Za-z0-9_.-]*(:[A-Za-z0-9_.-]+)?$" doc:"User, or user:group, in place of the image's own."`
}

// ImageStart is the body of POST /execution/image/start.
type ImageStart struct {
	Start
	Image
	Registry

	JobType string `json:"job_type" maxlen:"64" doc:"A word of the client's own, shown in the record."`
	Mount

	GracefulTimeout int    `json:"graceful_timeout" default:"10" min:"1" max:"300" doc:"Seconds between SIGTERM and SIGKILL when it is stopped."`
	Bundle          string `json:"bundle_id" maxlen:"36" doc:"An uploaded bundle, as POST /bundles makes it: its files are put into /work."`
}

// Check holds the rules that tags cannot say.
func (s *ImageStart) Check(f *Faults) {
	s.Start.Check(f)
	s.Registry.check(f)
	s.Image.check(f, &s.Start)
	checkName(f, s.JobType, "body", "job_type")
	s.Mount.check(f, &s.Start)
	if s.Ref == "" && !f.has("docker_image_ref") {
		f.add(typeMissing, nil, []any{"body", "docker_image_ref"})
	}
	if s.Preemptible {
		f.Value("containers are not preempted", "body", "preemptible")
	}
}

// check holds the rules that tags cannot say, and adds the variables to those of
// the start.
func (i *Image) check(f *Faults, start *Start) {
	if strings.ContainsAny(i.Ref, " \t\r\n\x00") {
		f.Value("the name of an image has no spaces", "body", "docker_image_ref")
	}
	checkArguments(i.Command, f, "docker_run_cmd")
	for n, line := range strings.Split(i.RunEnv, "\n") {
		line = strings.TrimSuffix(line, "\r")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, found := strings.Cut(line, "=")
		if !found || !variableName(name) || len(line) > maxVariable || strings.ContainsRune(value, 0) {
			f.Value(fmt.Sprintf("line %d is not NAME=VALUE", n+1), "body", "docker_run_env")
			continue
		}
		if _, set := start.Env[name]; !set {
			if start.Env == nil {
				start.Env = make(map[string]string)
			}
			start.Env[name] = value
		}
	}
	i.RunEnv = "" // It may be large, and Env has it.
}

// ComposeStart is the body of POST /execution/compose/start.
type ComposeStart struct {
	Start
	Registry

	File    string `json:"compose_file_code" maxlen:"262144" secret:"true" doc:"The Compose file as YAML text. ${NAME} stands for a variable of env. Keys that reach beyond the execution (privileges, devices, other namespaces, published ports, files and directories of machines, builds) are refused with their line and column; restart policies are not used. Services on a network with internal: true reach each other and nothing else; all other networks of a file are one, with the way out of an execution."`
	JobType string `json:"job_type" maxlen:"64" doc:"A word of the client's own, shown in the record."`
	Mount

	GracefulTimeout int `json:"graceful_timeout" default:"10" min:"1" max:"300" doc:"Seconds between SIGTERM and SIGKILL when it is stopped."`
}

// Check holds the rules that tags cannot say. The API reads the file.
func (s *ComposeStart) Check(f *Faults) {
	s.Start.Check(f)
	s.Registry.check(f)
	checkName(f, s.JobType, "body", "job_type")
	s.Mount.check(f, &s.Start)
	if s.Preemptible {
		f.Value("containers are not preempted", "body", "preemptible")
	}
	if s.File == "" && !f.has("compose_file_code") {
		f.add(typeMissing, nil, []any{"body", "compose_file_code"})
	}
}

// ComposeComplete is the body of POST /execution/compose/complete/{id}.
type ComposeComplete struct {
	Output     string `json:"output" maxlen:"16384" secret:"true" doc:"Kept beside the log, the first time."`
	Status     string `json:"status" enum:"completed,failed" doc:"Status that the client saw; it does not change the execution's own status."`
	ReturnCode *int   `json:"return_code" doc:"Exit code that the client saw."`
}

// Reported is a client's report about the end of a Compose execution.
type Reported struct {
	Output     string          `json:"output"`
	Status     *string         `json:"status"`
	ReturnCode *int64          `json:"return_code"`
	At         compute.Instant `json:"at"`
}
