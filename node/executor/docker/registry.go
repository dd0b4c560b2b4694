package docker

import (
	"slices"
	"strings"

	"github.com/distribution/reference"

	"berth/composefile"
)

// Reference returns the whole name of an image, with its registry, and its tag or
// digest. The error names its fault.
func Reference(text string) (string, error) {
	named, err := parse(text)
	if err != nil {
		return "", err
	}
	return named.String(), nil
}

func parse(text string) (reference.Named, error) {
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return nil, errNoImage("%q is not an image: %s", text, err.Error())
	}
	if composefile.OwnName(named) {
		return nil, errNoImage("%s", composefile.ErrOwnName.Error())
	}
	return reference.TagNameOnly(named), nil
}

// allowed returns an error if images must not be pulled from the registry of a
// reference. Its addresses are the guard's to check.
func (e *Engine) allowed(named reference.Named) error {
	domain := reference.Domain(named)
	if len(e.cfg.Registries) == 0 || slices.Contains(e.cfg.Registries, domain) {
		return nil
	}
	return errNoImage("images of %s are not allowed here: the operator allows %s",
		domain, strings.Join(e.cfg.Registries, ", "))
}
