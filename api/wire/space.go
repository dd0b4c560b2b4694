//nolint:lll // A field and its rules are one line.
package wire

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"berth/compute"
)

// Space is the disk space that an execution asks for, beside its hardware.
type Space struct {
	Scratch   string   `json:"scratch" default:"\"disk\"" enum:"disk,memory" doc:"Where /work and /tmp are: on the disk of the node, or in memory, inside the memory limit."`
	ScratchGB int      `json:"scratch_gb" min:"1" max:"65536" doc:"Size of /work and /tmp on disk, in GiB. Without it they have the node's default, 50 GiB unless the operator set another one."`
	Volumes   []Volume `json:"volumes" maxitems:"16" doc:"Directories of the nodes, by the names under which the operator offers them; it is placed on a node that has all of them."`
}

// Volume is a directory that an execution asks for.
type Volume struct {
	Name     string `json:"name" required:"true" pattern:"^[a-z0-9][a-z0-9-]{0,62}$" doc:"As the operator calls it; GET /admin/nodes lists the offers of each node."`
	Path     string `json:"path" maxlen:"512" doc:"Where the code sees it: absolute, and not a directory of the system. /mnt/NAME when absent."`
	ReadOnly bool   `json:"read_only" default:"false" doc:"The code cannot write to it, even where the operator lets it."`
}

// check holds the rules that tags cannot say.
func (s *Space) check(f *Faults) {
	if s.ScratchGB > 0 && s.Scratch == "memory" {
		f.Value("scratch_gb is a size on disk: scratch space in memory has half of the memory limit", "body", "scratch_gb")
	}
	at := make(map[string]bool)
	for i, v := range s.Volumes {
		if v.Name == "" {
			continue // Said already.
		}
		target := v.Path
		if target == "" {
			target = compute.VolumesDir + "/" + v.Name
		}
		if why := badVolumePath(target); why != "" {
			f.Value(why, "body", "volumes", i, "path")
		}
		if at[target] {
			f.Value("two volumes have one path", "body", "volumes", i, "path")
		}
		at[target] = true
	}
}

// badVolumePath says why code cannot see a volume at the path, "" when it can.
func badVolumePath(target string) string {
	if !path.IsAbs(target) || target != path.Clean(target) || target == "/" || hasUnprintable(target) {
		return "the path of a volume is absolute, without '.' and '..'"
	}
	first, rest, _ := strings.Cut(strings.TrimPrefix(target, "/"), "/")
	switch first {
	case "mnt", "data", "datasets", "models", "home", "opt", "srv", "media", "volumes", "workspace", "s3", "storage":
		return ""
	case "work":
		if rest != "" {
			return ""
		}
	}
	return "the path of a volume is below /work, or in /mnt, /data, /datasets, /models, /home, /opt, /srv, /media, /volumes, /workspace, /s3 or /storage"
}

// defaultMount is where code sees the stored files if its start says nothing else.
const defaultMount = "/mnt/s3"

// Mount is how the code of an execution sees the stored files.
type Mount struct {
	EnableS3Mount *bool  `json:"enable_s3_mount" doc:"Show the stored files of the organization as a directory. A file is stored when it is closed or synced, and at the latest when the execution ends. true is refused as no_storage_mount where no node has /dev/fuse. When absent, an image has them if its node can mount and the API key may use storage, and Python code and a Compose file, whose services all see the same directory, do not."`
	S3MountPath   string `json:"s3_mount_path" default:"\"/mnt/s3\"" maxlen:"512" doc:"Where the code sees them: absolute, not a directory of the system, and not at, below or above a volume."`
}

// check holds the rules that tags cannot say.
func (m *Mount) check(f *Faults, start *Start) {
	m.S3MountPath = cmp.Or(m.S3MountPath, defaultMount)
	if m.EnableS3Mount != nil && !*m.EnableS3Mount {
		return
	}
	if why := badVolumePath(m.S3MountPath); why != "" {
		f.Value(strings.Replace(why, "volume", "mount", 1), "body", "s3_mount_path")
	}
	if i := m.volumeAt(start); i >= 0 && m.EnableS3Mount != nil {
		f.Value("a volume is at, below or above the mount of storage", "body", "volumes", i, "path")
	}
}

// volumeAt returns the number of a volume that is in the way of the mount, -1 for none.
func (m *Mount) volumeAt(start *Start) int {
	return slices.IndexFunc(start.Volumes, func(v Volume) bool {
		target := cmp.Or(v.Path, compute.VolumesDir+"/"+v.Name)
		return compute.PathsOverlap(target, m.S3MountPath)
	})
}

// Asked reports whether code is to see the stored files, and whether the start says so.
// Where it does not, they are shown if that is the standard and nothing is in the way.
func (m *Mount) Asked(start *Start, standard bool) (wanted, said bool) {
	if m.EnableS3Mount != nil {
		return *m.EnableS3Mount, true
	}
	return standard && m.volumeAt(start) < 0, false
}

// MountOf returns where e sees the stored files, nil if it does not.
func MountOf(e *compute.Execution) *string {
	if e.Storage == nil {
		return nil
	}
	return &e.Storage.Path
}

// Scratch is the scratch space of an execution.
type Scratch struct {
	On  string `json:"on" doc:"disk or memory."`
	MiB int64  `json:"mib,omitempty" doc:"Its size on disk, where it asked for one."`
}

// SpaceOf returns the space that e asked for, nil for the node's default.
func SpaceOf(e *compute.Execution) (scratch *Scratch, volumes []Volume) {
	if e.ScratchMemory {
		scratch = &Scratch{On: "memory"}
	} else if e.ScratchMiB > 0 {
		scratch = &Scratch{On: "disk", MiB: e.ScratchMiB}
	}
	for _, v := range e.Volumes {
		volumes = append(volumes, Volume{Name: v.Name, Path: v.Path, ReadOnly: v.ReadOnly})
	}
	return scratch, volumes
}

// SetOn sets in e the space that was asked for.
func (s *Space) SetOn(e *compute.Execution) {
	e.ScratchMiB, e.ScratchMemory = int64(s.ScratchGB)<<10, s.Scratch == "memory"
	for _, v := range s.Volumes {
		e.Volumes = append(e.Volumes, compute.Volume{Name: v.Name, Path: v.Path, ReadOnly: v.ReadOnly})
	}
}
