package prepare

import (
	"path"
	"path/filepath"
	"strings"

	"berth/compute"
)

// maxEarlyBytes limits the variables of code whose interpreter starts early: the kernel, which
// refuses too many, does not see them then.
const maxEarlyBytes = 64 << 10

// startsEarly is the function startsEarly for this node: where the directories of the operator's
// modules have code that an interpreter runs when it starts, it sees all variables.
func (p *Preparer) startsEarly(x *compute.Execution, bundle *compute.Bundle, kept []compute.EnvVariable) bool {
	return startsEarly(x, bundle, kept) && (len(bundle.Env)+len(kept) == 0 || !startHooks(p.cfg.SiteDirs))
}

// startsEarly reports whether the interpreter of an execution may start before it has the
// variables and the files: none of them changes how it starts, and nothing of the user's
// runs before the journal has the start. Packages, environments and volumes may have code that
// an interpreter runs when it starts (sitecustomize, usercustomize, .pth files). kept are the
// variables that the user keeps.
func startsEarly(x *compute.Execution, bundle *compute.Bundle, kept []compute.EnvVariable) bool {
	if bundle.Code == "" || bundle.Requirements != "" || x.Files != nil ||
		x.Environment != (compute.EnvironmentRef{}) || x.Storage != nil || len(x.Volumes) > 0 {
		return false
	}
	bytes := 0
	plain := func(name, value string) bool {
		bytes += len(name) + len(value)
		return bytes <= maxEarlyBytes && !readAtStart(name)
	}
	for name, value := range bundle.Env {
		if !plain(name, value) {
			return false
		}
	}
	for _, v := range kept {
		if !plain(v.Name, v.Value) {
			return false
		}
	}
	for name := range bundle.ImportFiles {
		if ownPackages(name) {
			return false
		}
	}
	for name := range bundle.StoredFiles {
		if ownPackages(name) {
			return false
		}
	}
	return true
}

// readAtStart reports whether the interpreter, the loader or the C library read a variable when
// a program starts, or packages do that have the interpreter run code of theirs then: setuptools,
// coverage, and agents that observe programs.
func readAtStart(name string) bool {
	for _, prefix := range []string{
		"PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_", "GCONV_", "TZ",
		"SETUPTOOLS_", "COVERAGE_", "COV_CORE_", "AUTOWRAPT_", "DD_", "OTEL_", "NEW_RELIC_", "ELASTIC_APM_", "SENTRY_",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return name == "HOME" || name == "LOCPATH" || name == "__PYVENV_LAUNCHER__"
}

// startHooks reports whether a directory of modules has code that an interpreter runs when it
// starts, which may read any variable.
func startHooks(dirs []string) bool {
	for _, dir := range dirs {
		for _, name := range []string{"sitecustomize", "usercustomize"} {
			if found, err := filepath.Glob(filepath.Join(dir, name+"*")); err != nil || len(found) > 0 {
				return true
			}
		}
	}
	return false
}

// ownPackages reports whether a file is in the directory of the user's own packages, which
// the interpreter looks for in the home directory when it starts.
func ownPackages(name string) bool { return strings.HasPrefix(path.Clean(name), ".local/") }
