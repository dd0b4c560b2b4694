package supervise

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"berth/compute"
	"berth/node/executor/supervise/mask"
)

// readVariables adds the variables that the user keeps to the environment of the
// code, and remembers the secrets among them, which output must not show. They come
// in memory, from a descriptor.
func (s *supervisor) readVariables() error {
	if !s.spec.Variables {
		return nil
	}
	file, err := claim(FDVariables, "variables")
	if err != nil {
		return fmt.Errorf("read variables: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(file)
	if err != nil {
		return fmt.Errorf("read variables: %w", err)
	}
	var variables []compute.EnvVariable
	if err := json.Unmarshal(data, &variables); err != nil {
		return fmt.Errorf("read variables: %w", err)
	}
	var secrets []string
	for _, v := range variables {
		s.spec.Sandbox.Env = withVariable(s.spec.Sandbox.Env, v.Name, v.Value)
		if v.Secret {
			secrets = append(secrets, v.Value)
		}
	}
	s.secrets = mask.New(secrets)
	return nil
}

// withVariable returns an environment in which a variable has a value. The module
// path keeps what it has, behind the value.
func withVariable(env []string, name, value string) []string {
	for i, pair := range env {
		if has, ok := strings.CutPrefix(pair, name+"="); ok {
			if name == "PYTHONPATH" {
				value += ":" + has
			}
			env[i] = name + "=" + value
			return env
		}
	}
	return append(env, name+"="+value)
}
