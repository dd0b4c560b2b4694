package api_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/api/edge"
	"berth/api/edge/openai"
	"berth/api/handler"
	"berth/compute"
	"berth/fsm/command"
)

// poorModels refuses all who would pay, and counts what is counted as load.
type poorModels struct {
	engineModels

	counted atomic.Int64
}

func (m *poorModels) Count(compute.ExecutionID, func() time.Time) (answered, done func()) {
	m.counted.Add(1)
	return func() {}, func() {}
}

func (m *poorModels) Reserve(
	context.Context, compute.Payer, *compute.Model, int64, int64,
) (openai.Reservation, error) {
	return nil, compute.Errorf(compute.CodeForbidden, "You exceeded your current quota.").Named("insufficient_quota")
}

// TestPoorClientsResumeNothing asks a paused published model as an organization without
// credits: the model stays paused, and the request is no load of it. One that is ready is
// not loaded either.
func TestPoorClientsResumeNothing(t *testing.T) {
	models := new(poorModels)
	w := newWorld(t, func(c *handler.Config) {
		c.Models, c.Tokens, c.Stopwatch = models, models, time.Now
		c.ModelLimits = edge.ModelLimits{InFlight: 1, ResumeWait: time.Second}
	})
	w.upgrade()
	id := w.deploy()
	w.must(command.SetModel{Actor: command.Actor{Root: true}, ID: "chat", Deployment: id})
	check := func(want compute.DeploymentState) {
		t.Helper()
		a := w.send("POST", edge.ModelRoot+"/chat/completions", w.adaKey, `{"model":"chat","messages":[]}`)
		e, _ := w.machine.View().AnyExecution(id)
		if a.status != 403 || modelCode(a) != "insufficient_quota" || e.Deployment.State != want || models.counted.Load() != 0 {
			t.Errorf("%d %s: the deployment is %s, %d requests are counted", a.status, a.body, e.Deployment.State,
				models.counted.Load())
		}
	}
	check(compute.DeploymentActive)
	e, _ := w.machine.View().AnyExecution(id)
	w.must(command.ScaleDeployment{Term: 1, Deployment: id, Since: e.Deployment.ChangedAt})
	models.unready.Store(true)
	check(compute.DeploymentPaused)
}

// TestDeniedClientsResumeNothing asks a paused deployment whose replicas can get no hardware: the
// answer comes at once with the code of a create, no replica is asked for, and callers of a
// published model do not learn what hardware its organization may use.
func TestDeniedClientsResumeNothing(t *testing.T) {
	models := new(engineModels)
	w := newWorld(t, func(c *handler.Config) {
		c.Models, c.Tokens, c.Stopwatch = models, new(purse), time.Now
		c.ModelLimits = edge.ModelLimits{InFlight: 1, ResumeWait: time.Second}
	})
	w.upgrade()
	root, id := command.Actor{Root: true}, w.deploy()
	w.must(command.SetModel{Actor: root, ID: "chat", Deployment: id})
	e, _ := w.machine.View().AnyExecution(id)
	w.must(command.ScaleDeployment{Term: 1, Deployment: id, Since: e.Deployment.ChangedAt})
	models.unready.Store(true)
	w.must(command.SetQuota{Actor: root, Quota: compute.Quota{Org: e.Org, Profile: "cpu", Denied: true}})
	w.saw = func(cmd command.Command) {
		if _, resumes := cmd.(command.ResumeDeployment); resumes {
			t.Error("it is resumed")
		}
	}
	for _, ask := range []struct {
		model, key string
		says       bool
	}{{id.String(), w.adaKey, true}, {"chat", w.adaKey, false}, {"chat", w.bobKey, false}} {
		a := w.send("POST", edge.ModelRoot+"/chat/completions", ask.key, `{"model":"`+ask.model+`","messages":[]}`)
		if a.status != 403 || modelCode(a) != "profile_denied" || strings.Contains(string(a.body), "may not use cpu") != ask.says {
			t.Errorf("%s: %d %s", ask.model, a.status, a.body)
		}
	}
	if e, _ = w.machine.View().AnyExecution(id); e.Deployment.State != compute.DeploymentPaused {
		t.Errorf("the deployment is %s", e.Deployment.State)
	}
}
