package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
)

// version, build and revision are set by the Makefile.
//
//nolint:gochecknoglobals // The linker sets variables only.
var (
	version  = "0.1.0"
	build    = "unknown"
	revision = "" // Source revision, recorded in measurements with this program.
)

// versionInfo is the output of berth version.
type versionInfo struct {
	Version  string `json:"version"`
	Build    string `json:"build"` // The date of the source.
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// versionInfoOf returns the version of this program.
func versionInfoOf() versionInfo {
	return versionInfo{
		Version: version, Build: build, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
	}
}

// text returns the version in a line.
func (v versionInfo) text() string {
	return fmt.Sprintf("berth %s (%s) %s %s\n", v.Version, v.Build, v.Go, v.Platform)
}

// newVersion returns the command berth version.
func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cli.Arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			info := versionInfoOf()
			if asJSON {
				return cli.PrintJSON(cmd.OutOrStdout(), info)
			}
			_, err := fmt.Fprint(cmd.OutOrStdout(), info.text())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
