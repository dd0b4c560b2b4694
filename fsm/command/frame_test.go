package command_test

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"berth/compute"
	"berth/fsm/command"
	"berth/fsm/format"
	"berth/fsm/store"
)

// everyCommand returns one command of each kind with some content.
func everyCommand() []command.Command {
	a := command.Actor{User: compute.UserID{UUID: compute.UUID{1}}, Org: compute.OrgID{UUID: compute.UUID{2}}}
	op := command.Op{ID: compute.OpID{UUID: compute.UUID{3}}, Request: compute.Hash{4}}
	id := compute.ExecutionID{UUID: compute.UUID{5}}
	node := compute.NodeID{UUID: compute.UUID{6}}
	key := compute.KeyID{UUID: compute.UUID{7}}
	return []command.Command{
		command.Clock{At: 1, Term: 2},
		command.Bootstrap{ClusterID: compute.UUID{8}, Prices: map[string]compute.Price{"t4": 1, "cpu": 2}},
		command.SetSettings{Term: 1, Settings: command.Settings{Meter: true, TimeoutMax: time.Hour}},
		command.RegisterNode{Node: compute.Node{ID: node, Name: "n"}, First: true},
		command.SetInventory{Term: 1, Inventory: compute.Inventory{
			Node: node, GPUs: []compute.GPU{{ID: "a", Type: "t4"}}, EngineFault: "silent",
		}},
		command.SetNodeState{Term: 1, Node: node, State: compute.NodeDown},
		command.DrainNode{Op: op, Actor: a, Node: node, Drained: true},
		command.RemoveNode{Op: op, Actor: a, Node: node, Beside: []compute.NodeID{node}},
		command.CreateJoinToken{Op: op, Actor: a, Token: compute.JoinToken{ID: "t", Uses: 3}},
		command.CreateUser{Op: op, Actor: a, User: compute.User{Email: "e"}, Org: compute.Org{Slug: "s"}},
		command.CreateKey{Op: op, Actor: a, Key: compute.Key{ID: key, Name: "k"}},
		command.ToggleKey{Op: op, Actor: a, Key: key},
		command.DeleteKey{Op: op, Actor: a, Key: key},
		command.RegenerateKey{Op: op, Actor: a, Key: key, Lookup: "l"},
		command.TouchKeys{Used: map[compute.KeyID]compute.Instant{key: 9, {UUID: compute.UUID{10}}: 11}},
		command.StoreRefresh{Op: op, Token: compute.RefreshToken{Hash: compute.Hash{1}}, Password: compute.Hash{2}},
		command.RotateRefresh{Op: op, Old: compute.Hash{1}, Actor: a},
		command.RevokeRefresh{Op: op, Token: compute.Hash{1}, Actor: a},
		command.Submit{Op: op, Actor: a, Execution: compute.Execution{
			ID: id, Timeout: time.Minute, Tags: []string{"x"},
			Selection: &compute.Selection{GPUTypes: []string{"t4"}},
			Storage:   &compute.StorageMount{Path: "/mnt/s3", Optional: true},
		}},
		command.TakeSelection{Term: 1, Parent: id, Children: []command.Child{{ID: id, Profile: "gpu.t4"}}},
		command.CommitPlan{Term: 1, Plan: compute.Plan{Assignments: []compute.Assignment{
			{Execution: id, Node: node, GPUs: []compute.GPUShare{{GPU: "a", Milli: 1000}}},
		}}},
		command.StartAttempt{Node: node, Start: compute.AttemptStart{Execution: id, Epoch: 1}},
		command.FinishAttempt{Node: node, Outcome: compute.Outcome{
			Execution: id, Status: compute.StatusFailed, Series: &compute.Hash{1},
		}},
		command.LoseAttempts{Term: 1, Node: node, Attempts: []command.AttemptRef{{Execution: id, Epoch: 1}}},
		command.StopExecution{Op: op, Actor: a, Execution: id, Stop: compute.StopHard},
		command.DeleteExecution{Op: op, Actor: a, Execution: id},
		command.Grant{Op: op, Actor: a, Amount: 5},
		command.SetPrices{Op: op, Actor: a, Prices: map[string]compute.Price{"b": 1, "a": 2}},
		command.AddSigningKey{Term: 1, Key: compute.SigningKey{ID: "k", Public: []byte{1}, Sealed: []byte{2}}},
		command.Tick{Term: 1},
		command.RecordEstimates{Term: 1, At: 5, Estimates: []compute.StartEstimate{
			{Execution: id, P50: time.Second, P90: time.Minute},
		}},
		command.StopCandidates{Term: 1, Parent: id, Stops: []compute.CandidateStop{{Execution: id, Detail: "slow"}}},
		command.SetQuota{Op: op, Actor: a, Quota: compute.Quota{Tag: "x", Concurrent: 3, Profile: "cpu", Denied: true}},
		command.SetFormat{Term: 1, Format: format.Newest},
		command.SetBrake{Op: op, Actor: a, Share: new(50), Release: true},
		command.RaiseEpoch{Term: 1, Epoch: 2, Cause: command.CauseRecovered, At: 5},
		command.ArchiveExecutions{Term: 1, Blob: compute.Hash{1}, Size: 9, Month: 24314, Sum: [4]uint64{1, 2, 3, 4}, Executions: id.UUID[:]},
		command.RemovePrice{Op: op, Actor: a, Name: "t4", BuiltIn: 60},
		command.SetBillingMode{Op: op, Actor: a, Meter: true},
		command.CreateUpload{Op: op, Actor: a, Upload: compute.Upload{
			ID: compute.BundleID(id), Manifest: compute.Hash{1}, Bytes: 9, Files: 2, Chunks: 9, Have: []byte{1, 0},
		}, Sources: []compute.BundleID{{UUID: id.UUID}}},
		command.ReceiveChunks{Actor: a, Bundle: compute.BundleID(id), Chunks: []int{0, 8}},
		command.CommitUpload{Op: op, Actor: a, Bundle: compute.BundleID(id)},
		command.SetUser{
			Op: op, Actor: a, User: a.User, Password: "h", Temporary: true, Keep: compute.UUID{9}, Disabled: new(true),
			Checked: compute.Hash{4},
		},
		command.SetMember{Op: op, Actor: a, Org: a.Org, User: a.User, Role: compute.OrgAdmin},
		command.RemoveMember{Op: op, Actor: a, Org: a.Org, User: a.User},
		command.RecordDeliveries{Term: 1, Deliveries: []compute.Delivery{{Execution: id, Number: 1, At: 5, Code: 500, Error: "x", NextAt: 9}}},
		command.RedeliverCallbacks{Op: op, Actor: a, Execution: id, Number: new(1)},
		command.StartReplicas{Term: 1, Service: id, Replicas: []command.NewReplica{{Number: 2, ID: id}}},
		command.ScaleService{Op: op, Actor: a, Service: id, Replicas: 3},
		command.SetReady{Node: node, Execution: id, Epoch: 3, Ready: true},
		command.PutVariables{Op: op, Actor: a, Key: &compute.DataKey{Sealed: []byte{1}}, Variables: []compute.Variable{
			{ID: compute.VariableID(id), Name: "A", Secret: true, Sealed: []byte{2}, Key: 1}, {Name: "B", Value: "b"},
		}},
		command.RemoveVariables{Op: op, Actor: a, ID: compute.VariableID(id)},
		command.CreateOrg{Op: op, Actor: a, Org: compute.Org{ID: compute.OrgID(id), Slug: "vision", Name: "Vision"}},
		command.SetOrg{Op: op, Actor: a, Org: a.Org, Name: "Vision", Slug: "seeing", BillingEmail: "b@example.com"},
		command.DeleteOrg{Op: op, Actor: a, Org: a.Org},
		command.SetDefaultOrg{Op: op, Actor: a, Org: a.Org},
		command.PutInvite{Op: op, Actor: a, Invite: compute.Invite{
			ID: compute.InviteID(id), Org: a.Org, Email: "bea@example.com", Role: 1, Hash: compute.Hash{1},
		}},
		command.RevokeInvite{Op: op, Actor: a, Org: a.Org, Invite: compute.InviteID(id)},
		command.AnswerInvite{Op: op, Actor: a, Org: a.Org, Invite: compute.InviteID(id), Hash: compute.Hash{1}, Accept: true},
		command.DeleteUser{Op: op, Actor: a, Checked: compute.Hash{4}},
		command.CreateEnvironment{Op: op, Actor: a, Environment: compute.Environment{
			ID: compute.EnvironmentID(id), Org: a.Org, Name: "torch24", Requirements: "torch==2.4.0",
		}},
		command.DeleteEnvironment{Op: op, Actor: a, Org: a.Org, Name: "torch24"},
		command.ReportEnvironment{Node: node, Environment: compute.EnvironmentID(id), Status: compute.EnvironmentFailed, Error: "no"},
		command.TrustOrg{Op: op, Actor: a, Org: a.Org, Trusted: true},
		command.CompleteExecution{Op: op, Actor: a, Execution: id, Reported: compute.Reported{Output: "done"}},
		command.CreateBucket{Actor: a, Bucket: compute.Bucket{Sealed: []byte{1}}},
		command.PutObject{
			Op: op, Actor: a, Object: compute.Object{Key: "a/b", Size: 5, Blob: compute.Hash{1}, Whole: true, Type: "text/plain"},
			Upload: compute.ObjectUploadID(id), Revision: 1, Match: "*", From: "c", FromBlob: compute.Hash{1},
		},
		command.DeleteObjects{Op: op, Actor: a, Keys: []string{"a/b"}, Prefix: "c/", Match: "0"},
		command.StartObjectUpload{Op: op, Actor: a, Upload: compute.ObjectUpload{ID: compute.ObjectUploadID(id), Key: "a", Meta: []byte{1}}},
		command.PutObjectPart{Op: op, Actor: a, Part: compute.ObjectPart{Upload: compute.ObjectUploadID(id), Number: 1, Size: 2, Blob: compute.Hash{2}}},
		command.AbortObjectUpload{Op: op, Actor: a, Upload: compute.ObjectUploadID(id)},
		command.SetBucketLimits{Op: op, Actor: a, Org: a.Org, MaxBytes: 1, MaxObjects: 2, UserMaxBytes: 3},
		command.SetCallbackSecret{
			Op: op, Actor: a, Org: a.Org, Key: &compute.DataKey{Sealed: []byte{1}},
			Secret: compute.CallbackSecret{Number: 1, Key: 1, Sealed: []byte{2}},
		},
		command.RemoveCallbackSecret{Op: op, Actor: a, Org: a.Org},
		command.ChangeDeployment{Op: op, Actor: a, Deployment: id, Start: true},
		command.ScaleDeployment{Term: 1, Deployment: id, Replicas: 2, Since: 5},
		command.ResumeDeployment{Deployment: id},
		command.SetBudget{Op: op, Actor: a, Budget: compute.Budget{Org: a.Org, Key: key, MaxCredits: 5, Monthly: true, Enforce: true}},
		command.RemoveBudget{Op: op, Actor: a, Org: a.Org, Key: key, User: a.User},
		command.RecordPurchase{Purchase: compute.Purchase{Org: a.Org, ID: "cs_1", Amount: 5, Paid: 100, Currency: "eur", Payment: "pi_1"}},
		command.RecordDeed{Op: op, Actor: a, Action: "backup.save", Target: "x"},
		command.SignUp{Op: op, Actor: a, User: compute.User{Email: "e", Subject: "https://id 1", Unproven: true}, Org: compute.Org{Slug: "s"}, Join: true},
		command.LinkUser{Op: op, Actor: a, User: a.User, Subject: "https://id 1", Email: "n@example.com", FullName: "N"},
		command.RotateKey{
			Op: op, Actor: a, Org: a.Org, Key: &compute.DataKey{Number: 2, Sealed: []byte{1}}, Retire: true,
			Variables: []compute.Variable{{Name: "A", Sealed: []byte{2}, Key: 2}}, Signing: []compute.CallbackSecret{{Number: 1, Key: 2}},
			Texts: []command.ResealedText{{Before: []byte{1}, Sealed: []byte{2}, Key: 2}},
		},
		command.SealWith{Op: op, Actor: a, Prefixes: [][]byte{{1, 2, 3, 4, 5}}, Before: compute.Hash{1}},
		command.Reseal{Op: op, Actor: a, Keys: []command.SealedKey{
			{Kind: command.SealedSigning, Org: a.Org, ID: "k", Sealed: []byte{1}, Before: compute.Hash{2}},
		}},
		command.SetModel{Op: op, Actor: a, ID: "m", Deployment: id, Prices: compute.TokenPrices{Prompt: 1, Completion: 2}},
		command.RemoveModel{Op: op, Actor: a, ID: "m"},
		command.SettleTokens{
			Node: node, Session: 7, Number: 1,
			Usage: []command.UsedTokens{{Payer: compute.Payer{Org: a.Org, User: a.User, Key: key}, Model: "m", Prompt: 3, Completion: 4, Requests: 1}},
			Holds: []command.WantedHold{{Payer: compute.Payer{Org: a.Org, User: a.User}, Least: 5, Most: 6}},
		},
		command.UpdateDeployment{
			Op: op, Actor: a, Deployment: id, Model: &compute.Inference{Engine: "echo", Model: "c/d", Args: []string{"--x"}},
			Scaling: &compute.Deployment{Min: 1, Max: 2}, Key: &compute.DataKey{Sealed: []byte{1}},
		},
		command.SurgeService{Term: 1, Service: id},
		command.ArchiveOutputs{Outputs: []compute.OutputArchive{{Execution: id, Epoch: 1, Blob: compute.Hash{1}, Whole: true, Size: 9, Partial: true}}},
		command.TrimOutputs{Term: 1, Bytes: 5},
		command.RotateRootToken{Op: op, Actor: a, Token: compute.Hash{1}, Before: compute.Hash{2}},
	}
}

func TestEveryCommandTravels(t *testing.T) {
	const contiguous = 60 // Beyond, numbers rise and may be left out.
	last := 0
	for i, cmd := range everyCommand() {
		frame, err := command.Encode(cmd)
		if err != nil {
			t.Fatalf("encode %T: %v", cmd, err)
		}
		if n := int(frame[0]); n <= last || i < contiguous && n != i+1 {
			t.Errorf("%T has the number %d behind %d: numbers are on disk", cmd, n, last)
		}
		last = int(frame[0])
		got, rest, err := command.Decode(append(frame, "rest"...))
		if err != nil || string(rest) != "rest" || !reflect.DeepEqual(got, cmd) {
			t.Errorf("%T came back as %+v, rest %q, %v", cmd, got, rest, err)
		}
		again, err := command.Encode(got)
		if err != nil || !bytes.Equal(again, frame) {
			t.Errorf("%T has another encoding the second time", cmd)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	frame := func(kind, version byte, payload string) []byte {
		data := binary.BigEndian.AppendUint32([]byte{kind, version}, uint32(len(payload)))
		return append(data, payload...)
	}
	const tick, submit, loseAttempts = 30, 19, 24
	huge := frame(tick, 1, "")
	binary.BigEndian.PutUint32(huge[2:], 1<<31)
	tests := []struct {
		name string
		data []byte
		want string
	}{
		{"nothing", nil, "cut short"},
		{"half a header", frame(tick, 1, "")[:5], "cut short"},
		{"half a payload", frame(tick, 1, "\xa1\x01\x01")[:8], "cut short"},
		{"too large", huge, "at most"},
		{"unknown kind", frame(200, 1, "\xa0"), "unknown kind"},
		{"kind 0", frame(0, 1, "\xa0"), "unknown kind"},
		{"unknown version", frame(tick, 2, "\xa0"), "version 2"},
		{"no CBOR", frame(tick, 1, "\xff"), "decode command"},
		{"another type", frame(tick, 1, "\xa1\x01\x61x"), "decode command"},
		{"unknown field", frame(tick, 1, "\xa1\x18\x63\x01"), "decode command"},
		{"field twice", frame(tick, 1, "\xa2\x01\x01\x01\x02"), "decode command"},
		{"something behind", frame(tick, 1, "\xa0\x00"), "decode command"},
		{"a tag", frame(tick, 1, "\xa1\x01\xc1\x01"), "decode command"},
		{"deep", frame(submit, 1, "\xa1\x03"+strings.Repeat("\x81", 40)+"\x01"), "decode command"},
		{"a long array", frame(loseAttempts, 1, "\xa1\x03\x9a\x00\x01\x00\x00"), "decode command"},
	}
	for _, test := range tests {
		cmd, _, err := command.Decode(test.data)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v; want %q", test.name, cmd, err, test.want)
		}
	}
}

func TestEncodeRefusesOversize(t *testing.T) {
	_, err := command.Encode(command.Submit{Execution: compute.Execution{JobType: strings.Repeat("x", command.MaxCommand)}})
	if compute.CodeOf(err) != compute.CodeTooLarge {
		t.Errorf("a huge command: %v", err)
	}
	if _, err := command.Encode(command.Grant{Note: "\xff"}); err == nil {
		t.Error("text that is no UTF-8 was encoded, and no replica could read it")
	}
}

func FuzzDecode(f *testing.F) {
	codec, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		f.Fatal(err)
	}
	for _, cmd := range everyCommand() {
		frame, err := command.Encode(cmd)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cmd, rest, err := command.Decode(data)
		if err != nil {
			return
		}
		if len(rest) >= len(data) {
			t.Fatal("a frame without length")
		}
		want, err := codec.Marshal(cmd)
		if err != nil {
			t.Fatal(err)
		}
		const header = 6 // Bytes of a frame before its payload.
		again := reflect.New(reflect.TypeOf(cmd))
		if err := cbor.Unmarshal(data[header:len(data)-len(rest)], again.Interface()); err != nil || !reflect.DeepEqual(again.Elem().Interface(), cmd) {
			t.Errorf("%T %+v is %+v for the codec, %v", cmd, cmd, again.Elem(), err)
		}
		if got, err := store.Encode(cmd); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%T %+v is encoded as %x, %v, want %x", cmd, cmd, got, err, want)
		}
	})
}
