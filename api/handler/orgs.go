package handler

import (
	"berth/compute"
	"berth/fsm"
)

// FindOrg returns the organization with a slug that an operator names.
func FindOrg(view *fsm.View, slug string) (*compute.Org, error) {
	org, ok := view.OrgBySlug(slug)
	if !ok {
		return nil, compute.Errorf(compute.CodeInvalid, "There is no organization %q.", slug).Named("unknown_org")
	}
	return org, nil
}
