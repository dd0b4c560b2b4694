package docker

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/registry"

	"berth/compute"
	"berth/compute/address"
)

// Reference returns the whole name of an image, with its registry, and its tag or
// digest. The error says what is wrong with it.
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
		return nil, errNoImage("%q is no image: %s", text, err.Error())
	}
	return reference.TagNameOnly(named), nil
}

// allowed returns an error if images must not be pulled from the registry of a
// reference. The engine is a process of the machine: a registry that a user names
// must not make it talk to what the user could not reach.
func (e *Engine) allowed(ctx context.Context, named reference.Named) error {
	domain := reference.Domain(named)
	if len(e.cfg.Registries) > 0 {
		if slices.Contains(e.cfg.Registries, domain) {
			return nil
		}
		return errNoImage("images of %s are not allowed here: the operator allows %s",
			domain, strings.Join(e.cfg.Registries, ", "))
	}
	host := domain
	if h, _, err := net.SplitHostPort(domain); err == nil {
		host = h
	}
	if address, err := netip.ParseAddr(host); err == nil {
		return publicOnly(domain, []netip.Addr{address})
	}
	addresses, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil //nolint:nilerr // The engine fails too, and says why.
	}
	return publicOnly(domain, addresses)
}

// publicOnly refuses a registry that has an address which is not public.
func publicOnly(domain string, addresses []netip.Addr) error {
	for _, found := range addresses {
		if slices.ContainsFunc(address.Special(), func(p netip.Prefix) bool { return p.Contains(found.Unmap()) }) {
			return errNoImage("images of %s are not allowed here: %s is not a public address, "+
				"and the operator does not allow the registry (docker.registries)", domain, found)
		}
	}
	return nil
}

// header returns credentials as the engine takes them, "" for none.
func header(credentials *compute.RegistryCredentials) (string, error) {
	if credentials == nil {
		return "", nil
	}
	return authconfig.Encode(registry.AuthConfig{
		Username: credentials.Username, Password: credentials.Password, ServerAddress: credentials.Server,
	})
}
