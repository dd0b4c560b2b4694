package execution

import (
	"os"
	"strings"

	"github.com/spf13/pflag"

	"berth/api/client"
	"berth/api/wire"
	"berth/cmd/berth/cli"
)

// maxRequirementBytes is the largest file of requirements. The node has its own limit.
const maxRequirementBytes = 1 << 20

// spaceFlags are the flags for packages and disk space.
type spaceFlags struct {
	requirements  string
	environment   string
	scratch       string
	scratchMemory bool
	volumes       []string
	storage       string
	outputs       string
}

func (f *spaceFlags) register(flags *pflag.FlagSet) {
	flags.StringVarP(&f.requirements, "requirements", "r", "",
		"`FILE` with Python packages to install before the code starts")
	flags.StringVar(&f.environment, "environment", "",
		"`NAME` of an environment that the nodes have ready, in place of -r (berth env ls)")
	flags.StringVar(&f.scratch, "scratch", "",
		"`size` of /work and /tmp on disk, such as 200g (default: the node's, usually 50g)")
	flags.BoolVar(&f.scratchMemory, "scratch-memory", false, "keep /work and /tmp in memory, inside the memory limit")
	flags.StringArrayVar(&f.volumes, "volume", nil,
		"directory of the nodes as `NAME[:PATH][:ro]`, at /mnt/NAME or PATH; repeat")
	flags.StringVar(&f.storage, "mount-storage", "",
		"show your stored files at a `PATH`; alone at /mnt/s3, off for a container without them")
	flags.Lookup("mount-storage").NoOptDefVal = "on"
	flags.StringVar(&f.outputs, "outputs-to", "",
		"`FOLDER` of your stored files that gets a copy of outputs/, such as storage://runs/7")
}

// apply sets in start what the flags ask for.
func (f *spaceFlags) apply(start *client.Start) (err error) {
	if f.requirements != "" {
		text, err := os.ReadFile(f.requirements)
		if err != nil {
			return cli.UsageErrorf("--requirements: %w", err)
		}
		if len(text) > maxRequirementBytes {
			return cli.UsageErrorf("--requirements: %s has more than %d bytes", f.requirements, maxRequirementBytes)
		}
		start.Requirements = string(text)
	}
	start.Environment = f.environment
	start.OutputsPrefix = strings.TrimPrefix(f.outputs, "storage://")
	if start.ScratchGB, err = parseGiB("--scratch", f.scratch); err != nil {
		return err
	}
	if f.scratchMemory {
		start.Scratch = "memory"
	}
	if err := f.mount(start); err != nil {
		return err
	}
	for _, text := range f.volumes {
		volume, err := parseVolume(text)
		if err != nil {
			return err
		}
		start.Volumes = append(start.Volumes, volume)
	}
	return nil
}

// mount sets in start whether the code sees the stored files.
func (f *spaceFlags) mount(start *client.Start) error {
	switch enabled := f.storage != "off"; {
	case f.storage == "":
	case enabled && f.storage != "on" && !strings.HasPrefix(f.storage, "/"):
		return cli.UsageErrorf("--mount-storage: %q is not a path, on or off", f.storage)
	case enabled && f.storage != "on":
		start.S3MountPath = f.storage
		fallthrough
	default:
		start.EnableS3Mount = &enabled
	}
	return nil
}

// parseVolume parses NAME[:PATH][:ro].
func parseVolume(text string) (v wire.Volume, err error) {
	rest, readOnly := strings.CutSuffix(text, ":ro")
	v.Name, v.Path, _ = strings.Cut(rest, ":")
	v.ReadOnly = readOnly
	if v.Name == "" || v.Path != "" && !strings.HasPrefix(v.Path, "/") {
		return v, cli.UsageErrorf("--volume: %q is not NAME, NAME:/PATH or either with :ro behind it", text)
	}
	return v, nil
}
