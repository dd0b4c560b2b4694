package composefile

import (
	"path"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
)

// File is a Compose file that is allowed.
type File struct {
	Services []Service
	Volumes  []string // Names, sorted.
	Internal []string // Names of the networks without a way out, sorted. All others are one.
	project  *types.Project
}

// Service is one service of a file.
type Service struct {
	Name  string
	Image string // The whole name.
	GPUs  int    // That it reserves, for one container; AllGPUs for all.
	Scale int
}

// AllGPUs is the number of GPUs of a service that gets all of its execution.
const AllGPUs = -1

// Images returns the images of all services, each once, sorted.
func (f *File) Images() []string {
	var images []string
	for _, s := range f.Services {
		images = append(images, s.Image)
	}
	slices.Sort(images)
	return slices.Compact(images)
}

// Targets returns the paths at which services have volumes and directories in memory, each
// once, sorted.
func (f *File) Targets() []string {
	var targets []string
	for _, name := range f.project.ServiceNames() {
		s := f.project.Services[name]
		for _, v := range s.Volumes {
			targets = append(targets, path.Clean(v.Target))
		}
		for _, t := range s.Tmpfs {
			target, _, _ := strings.Cut(t, ":")
			targets = append(targets, path.Clean(target))
		}
	}
	slices.Sort(targets)
	return slices.Compact(targets)
}

// Containers returns how many containers the services have together.
func (f *File) Containers() (count int) {
	for _, s := range f.Services {
		count += s.Scale
	}
	return count
}

// GPUs returns how many GPUs the services reserve together, and whether a service gets
// all that there are.
func (f *File) GPUs() (count int, all bool) {
	for _, s := range f.Services {
		if s.GPUs == AllGPUs {
			all = true
			continue
		}
		count += s.GPUs * s.Scale
	}
	return count, all
}
