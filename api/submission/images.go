package submission

import (
	"encoding/json"

	"github.com/distribution/reference"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/composefile"
	"berth/compute"
	"berth/fsm/command"
)

// ImageRef returns the whole name of an image.
func ImageRef(text string) (reference.Named, error) {
	named, err := reference.ParseNormalizedNamed(text)
	if err == nil {
		named = reference.TagNameOnly(named)
	}
	why := "not the name of an image, such as python:3.12-slim or registry.example.org/team/train:2"
	if err == nil && len(named.String()) <= compute.MaxImageName {
		if !composefile.OwnName(named) {
			return named, nil
		}
		why = composefile.ErrOwnName.Error()
	}
	f := new(wire.Faults)
	f.Value(why, "body", "docker_image_ref")
	return nil, f
}

// ShortImage returns the name of an image that a record shows as its program.
func ShortImage(ref reference.Named) string {
	name := reference.Path(ref)
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			name = name[i+1:]
			break
		}
	}
	if tagged, ok := ref.(reference.Tagged); ok {
		name += ":" + tagged.Tag()
	}
	return compute.Clip(name, maxShownName)
}

// SealCredentials adds what a registry asks for to a start, sealed with the data key of
// the organization.
func SealCredentials(
	c *handler.Core, r *edge.Request, login *compute.RegistryCredentials, cmd *command.Submit,
) error {
	if !r.Repeat {
		if err := r.View.AllowsContainers(); err != nil {
			return err
		}
	}
	if login == nil {
		return nil
	}
	org := r.Caller.Actor.Org
	key := r.View.DataKey(org)
	if key == nil {
		var err error
		if key, err = c.Config.Vault.NewKey(org); err != nil {
			return err
		}
		cmd.Key = key
	}
	text, err := json.Marshal(login)
	if err != nil {
		return err
	}
	e := &cmd.Execution
	e.Container.Key = key.Number
	e.Container.Credentials, err = c.Config.Vault.SealText(key, string(text), e.Container.Context(org, e.ID))
	return err
}
