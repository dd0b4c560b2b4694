package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"berth/cmd/berth/cli"
)

// TestReporting holds that a list has what was done, also before a failure.
func TestReporting(t *testing.T) {
	for _, asJSON := range []bool{false, true} {
		cmd := cli.Reporting(&cobra.Command{
			Use: "rm", SilenceErrors: true, SilenceUsage: true,
			RunE: func(cmd *cobra.Command, args []string) error {
				return cli.Each(cmd, args, func(arg string) error {
					if arg == "bad" {
						return errors.New("no such thing")
					}
					cli.Report(cmd, cli.Done{Name: arg, Done: "deleted"}, "%s is deleted", arg)
					return nil
				})
			},
		})
		var out, errs bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&errs)
		cmd.SetContext(t.Context())
		args := []string{"a", "bad", "c"}
		if asJSON {
			args = append(args, "--json")
		}
		cmd.SetArgs(args)
		if err := cmd.Execute(); err == nil {
			t.Error("it does not fail")
		}
		if !strings.Contains(errs.String(), "bad: no such thing") {
			t.Errorf("the failure is not said: %q", errs.String())
		}
		if !asJSON {
			if !strings.Contains(errs.String(), "berth: c is deleted") || out.Len() > 0 {
				t.Errorf("it prints %q and %q", out.String(), errs.String())
			}
			continue
		}
		var done []cli.Done
		if err := json.Unmarshal(out.Bytes(), &done); err != nil || !reflect.DeepEqual(done, []cli.Done{
			{Name: "a", Done: "deleted"}, {Name: "c", Done: "deleted"},
		}) {
			t.Errorf("it prints %q, %v", out.String(), err)
		}
	}
}
