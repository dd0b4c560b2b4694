package wire

import (
	"fmt"

	"berth/compute"
)

// NewVariable is one variable of PutVariables.
type NewVariable struct {
	Name   string  `json:"name" maxlen:"128" doc:"Letters, digits and underscores; does not begin with a digit or BERTH_."`
	Key    string  `json:"key" maxlen:"128" doc:"The same as name."`
	Value  *string `json:"value" secret:"true" doc:"At most 32768 bytes."`
	Secret bool    `json:"is_secret" default:"true" doc:"Whether its value is never shown again, and masked in output."`
}

// PutVariables is the body of POST /environment-variables: a list, or one variable.
type PutVariables struct {
	NewVariable

	Variables []NewVariable `json:"environment_variables" maxitems:"100" doc:"Several at once: all are stored, or none."`
}

// Check holds the rules that tags cannot say, and makes one variable a list.
func (p *PutVariables) Check(f *Faults) {
	single := p.Name != "" || p.Key != "" || p.Value != nil
	switch {
	case single && len(p.Variables) > 0:
		f.Value("give either environment_variables or one variable", "body")
		return
	case single:
		p.Variables = []NewVariable{p.NewVariable}
	case len(p.Variables) == 0 && f.has("environment_variables"): // Such as too many of them.
		return
	case len(p.Variables) == 0:
		f.Value("give at least one variable", "body", "environment_variables")
		return
	}
	names := make(map[string]bool, len(p.Variables))
	for i := range p.Variables {
		v := &p.Variables[i]
		loc := []any{"body", "environment_variables", i}
		if single {
			loc = []any{"body"}
		}
		if v.Name == "" {
			v.Name = v.Key
		}
		switch {
		case v.Key != "" && v.Key != v.Name:
			f.Value("name and key are the same: give one of them", append(loc, "key")...)
		case v.Value == nil:
			f.Value("a variable has a value", append(loc, "value")...)
		case names[v.Name]:
			f.Value(fmt.Sprintf("%.128q is in the request twice", v.Name), append(loc, "name")...)
		default:
			if bad := compute.BadVariable(v.Name, ""); bad != "" {
				f.Value(bad, append(loc, "name")...)
			} else if bad := compute.BadVariable(v.Name, *v.Value); bad != "" {
				f.Value(bad, append(loc, "value")...)
			}
		}
		names[v.Name] = true
	}
}

// Variable is a variable as it is shown.
type Variable struct {
	ID        compute.VariableID `json:"id"`
	Name      string             `json:"name"`
	Value     string             `json:"value" doc:"**** for a secret."`
	Secret    bool               `json:"is_secret"`
	CreatedAt compute.Instant    `json:"created_at"`
	UpdatedAt compute.Instant    `json:"updated_at"`
}

// Variables answers GET and POST /environment-variables.
type Variables struct {
	Variables []Variable `json:"environment_variables" doc:"By name."`
}

// DeletedVariables answers DELETE /environment-variables.
type DeletedVariables struct {
	Deleted int    `json:"deleted"`
	Message string `json:"message"`
}
