package config

import (
	"strings"
	"time"
)

// docker checks where containers are executed.
func (v *validator) docker(d Docker) {
	v.check("docker.host",
		d.Host == DockerAuto || d.Host == DockerOff || strings.HasPrefix(d.Host, "unix:///"),
		"must be auto, off or a socket such as unix:///run/docker.sock")
	v.check("docker.keep_mib", d.KeepMiB >= 1, "must be at least 1")
	v.check("docker.image_mib", d.ImageMiB >= 1, "must be at least 1")
	v.check("docker.pull_timeout", d.PullTimeout >= time.Second, "must be at least 1s")
}
