package fsm_test

import (
	"testing"

	"berth/compute"
	"berth/fsm/command"
)

// invite has an actor invite an address to ada's organization.
func (w *world) invite(by command.Actor, email string, role compute.OrgRole) compute.InviteID {
	w.Helper()
	id := compute.InviteID{UUID: w.uuid()}
	w.must(command.PutInvite{Actor: by, Invite: compute.Invite{ID: id, Org: w.org, Email: email, Role: role, Hash: compute.Hash{1}}})
	return id
}

// accept returns the acceptance of an invite to ada's organization.
func (w *world) accept(by command.Actor, id compute.InviteID) command.AnswerInvite {
	return command.AnswerInvite{Actor: by, Org: w.org, Invite: id, Hash: compute.Hash{1}, Accept: true}
}

// TestDemotionEndsInvites holds that a member that loses a role cannot get it back by an
// invite sent earlier.
func TestDemotionEndsInvites(t *testing.T) {
	w := newWorld(t)
	bea := w.member("bea", compute.OrgOwner)
	other, _ := w.view().User(w.other.User)
	id := w.invite(bea, other.Email, compute.OrgOwner)
	w.must(command.SetMember{Actor: w.ada, Org: w.org, User: bea.User, Role: compute.OrgAdmin})
	w.refused(w.accept(w.other, id), compute.CodeNotFound, "not_found")
	id = w.invite(bea, other.Email, compute.OrgAdmin)
	w.must(w.accept(w.other, id))
}

// TestAcceptedTwice holds that a repeat finds the membership, and none that has ended.
func TestAcceptedTwice(t *testing.T) {
	w := newWorld(t)
	other, _ := w.view().User(w.other.User)
	id := w.invite(w.ada, other.Email, compute.OrgAdmin)
	w.must(w.accept(w.other, id))
	w.must(w.accept(w.other, id))
	w.must(command.RemoveMember{Actor: w.ada, Org: w.org, User: other.ID})
	w.refused(w.accept(w.other, id), compute.CodeConflict, "invite_ended")
	id = w.invite(w.ada, other.Email, compute.OrgMember)
	w.must(command.SetMember{Actor: w.root, Org: w.org, User: other.ID, Role: compute.OrgAdmin})
	w.refused(w.accept(w.other, id), compute.CodeConflict, "already_member")
}

// TestDeletedOrganization holds that no actor can add anything to an organization that
// ended, and that its uploads are gone.
func TestDeletedOrganization(t *testing.T) {
	w := newWorld(t)
	made := compute.Org{ID: compute.OrgID{UUID: w.uuid()}, Slug: "made", Name: "made"}
	w.must(command.CreateOrg{Actor: w.ada, Org: made})
	owner := w.ada
	owner.Org = made.ID
	w.must(command.CreateUpload{Actor: owner, Upload: compute.Upload{
		ID: compute.BundleID{UUID: w.uuid()}, Manifest: compute.Hash{1}, Bytes: 9, Files: 2, Chunks: 9, Have: []byte{0, 0},
	}})
	w.must(command.DeleteOrg{Actor: owner, Org: made.ID})
	for range w.view().Uploads(made.ID) {
		t.Error("an upload is left")
	}
	w.refused(command.SetMember{Actor: w.root, Org: made.ID, User: w.other.User}, compute.CodeNotFound, "user_not_found")
	w.refused(command.Grant{Actor: w.root, Org: made.ID, Amount: 1}, compute.CodeNotFound, "org_unknown")
	w.refused(command.SetOrg{Actor: w.root, Org: made.ID, Name: "x"}, compute.CodeNotFound, "not_found")
	w.refused(command.DeleteOrg{Actor: w.root, Org: made.ID}, compute.CodeNotFound, "not_found")
	w.refused(command.PutInvite{Actor: w.root, Invite: compute.Invite{
		ID: compute.InviteID{UUID: w.uuid()}, Org: made.ID, Email: "x@example.com", Hash: compute.Hash{1},
	}}, compute.CodeNotFound, "not_found")
	if r := w.do(command.SetQuota{Actor: w.root, Quota: compute.Quota{Org: made.ID, Concurrent: 1}}); r.Refusal == nil {
		t.Error("a quota of it was set")
	}
	for range compute.MaxMadeOrgs - 1 {
		made.ID = compute.OrgID{UUID: w.uuid()}
		w.must(command.CreateOrg{Actor: w.ada, Org: made})
		owner.Org = made.ID
		w.must(command.DeleteOrg{Actor: owner, Org: made.ID})
	}
	w.refused(command.CreateOrg{Actor: w.ada, Org: made}, compute.CodeInvalid, "org") // It is known.
	made.ID = compute.OrgID{UUID: w.uuid()}
	w.refused(command.CreateOrg{Actor: w.ada, Org: made}, compute.CodeConflict, "too_many_orgs")
}

// TestDisabledInvites holds that the invites of a disabled user end, and that a
// deleted user does not come back.
func TestDisabledInvites(t *testing.T) {
	w := newWorld(t)
	bea := w.member("bea", compute.OrgAdmin)
	other, _ := w.view().User(w.other.User)
	id := w.invite(bea, other.Email, compute.OrgAdmin)
	w.must(command.SetUser{Actor: w.root, User: bea.User, Disabled: new(true)})
	w.refused(w.accept(w.other, id), compute.CodeNotFound, "not_found")
	w.must(command.SetUser{Actor: w.root, User: bea.User, Disabled: new(false)})
	w.must(command.DeleteUser{Actor: bea})
	w.refused(command.SetUser{Actor: w.root, User: bea.User, Disabled: new(false)}, compute.CodeNotFound, "user_not_found")
	w.refused(command.SetUser{Actor: w.root, User: bea.User, Password: "x"}, compute.CodeNotFound, "user_not_found")
	w.refused(command.SetMember{Actor: w.root, Org: w.org, User: bea.User}, compute.CodeNotFound, "user_not_found")
}
