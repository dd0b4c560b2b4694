package config

import (
	"net/url"
	"path/filepath"
	"time"

	"berth/compute"
	"berth/node/inference/engine"
)

// Inference is how deployments of models are served.
//
//nolint:lll // A field and its rules are one line.
type Inference struct {
	Engines     []engine.Engine `koanf:"engines" usage:"Programs that serve models, beside those that Berth ships."`
	Models      string          `koanf:"models" usage:"Directory of this node with models as owner/name; it is searched before the hub."`
	Hub         string          `koanf:"hub" usage:"URL of a hub of models, or of a mirror with its protocol; off: none is asked."`
	Unverified  bool            `koanf:"unverified_files" usage:"Accept files for which the hub names no hash; the deployment's log names them."`
	CacheMiB    int64           `koanf:"cache_mib" usage:"Disk space for models that were fetched; the longest unused ones are removed."`
	IdlePause   time.Duration   `koanf:"idle_pause" usage:"A deployment without requests for this long is paused; 0: never."`
	ResumeWait  time.Duration   `koanf:"resume_wait" usage:"How long a request waits for a deployment that starts."`
	AnswerWait  time.Duration   `koanf:"answer_wait" usage:"How long an engine may send nothing before and in an answer."`
	Starts      int             `koanf:"starts" usage:"Ends in a row of an engine after which its deployment has failed."`
	PerMinute   int             `koanf:"requests_per_minute" usage:"Requests of one API key to models, on each node; 0: no limit."`
	OrgInFlight int             `koanf:"in_flight" usage:"Requests of one organization to models under way at once, on each node."`
	Queue       int             `koanf:"queue" usage:"Requests that wait for one model while all its replicas are busy, on each node."`
	QueueWait   time.Duration   `koanf:"queue_wait" usage:"How long a request waits while all replicas are busy."`
}

// HubOff is the Inference.Hub of a node that asks no hub.
const HubOff = "off"

func defaultInference() Inference {
	return Inference{
		Hub: "https://huggingface.co", CacheMiB: 200 << 10, IdlePause: time.Hour, ResumeWait: time.Minute,
		AnswerWait: 10 * time.Minute, Starts: 5, PerMinute: 6000, OrgInFlight: 2048, Queue: 4096, QueueWait: time.Minute,
	}
}

// inference checks how models are served.
func (v *validator) inference(i Inference) {
	if _, err := engine.NewSet(i.Engines); err != nil {
		v.check("inference.engines", false, err.Error())
	}
	u, err := url.Parse(i.Hub)
	v.check("inference.hub", i.Hub == HubOff || err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "",
		"must be an http or https URL, or off")
	v.check("inference.models", i.Models == "" || filepath.IsAbs(i.Models), "must be an absolute path")
	v.check("inference.cache_mib", i.CacheMiB >= 1, "must be at least 1")
	v.check("inference.idle_pause", i.IdlePause >= 0, "must be at least 0")
	v.check("inference.resume_wait", i.ResumeWait > 0 && i.ResumeWait <= 10*time.Minute, "must be above 0 and at most 10m")
	v.check("inference.answer_wait", i.AnswerWait > 0 && i.AnswerWait <= 24*time.Hour, "must be above 0 and at most 24h")
	v.check("inference.starts", i.Starts >= 1 && i.Starts <= compute.MaxStarts, "must be 1 to 100")
	v.check("inference.requests_per_minute", i.PerMinute >= 0, "must be at least 0")
	v.check("inference.in_flight", i.OrgInFlight >= 1, "must be at least 1")
	v.check("inference.queue", i.Queue >= 0, "must be at least 0")
	v.check("inference.queue_wait", i.QueueWait > 0 && i.QueueWait <= 10*time.Minute, "must be above 0 and at most 10m")
}
